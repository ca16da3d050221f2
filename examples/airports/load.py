"""Accept a file: its batch record and a job for each row, in one transaction. ``python -m airports.load airports.csv.gz``"""

import sys
from pathlib import Path

from sqlalchemy.orm import Session

from . import models
from .models import Base, Batch
from .rows import read_rows
from .tasks import guard, import_airport


def make_tables() -> None:
    """The application's and the guard's. In production the second is ``celery -A airports.tasks guard store upgrade``."""
    models.FOLDER.mkdir(parents=True, exist_ok=True)
    Base.metadata.create_all(models.engine)
    guard.store.upgrade()


def load(session: Session, file: Path) -> Batch:
    """Add the batch and its jobs to the transaction. Nothing is sent before it commits, and nothing ever if it does not."""
    rows = read_rows(file)
    batch = Batch(file=file.name, rows=len(rows))
    session.add(batch)
    session.flush()
    import_airport.using(session).enqueue_many({"batch_id": batch.id, "row": row} for row in rows)
    return batch


def main() -> None:
    make_tables()
    with models.new_session.begin() as session:
        batch = load(session, Path(sys.argv[1]))
        print(f"batch {batch.id}: {batch.rows} rows of {batch.file}")


if __name__ == "__main__":
    main()
