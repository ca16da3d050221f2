"""The same import with plain Celery, to compare. The batch commits first and the messages go after it, as is usual."""

import sys
from pathlib import Path

from celery import Celery

from . import models
from .load import read_rows
from .models import BROKER, Base, Batch, Session
from .tasks import read_airport

app = Celery("airports-plain", broker=BROKER)
app.conf.task_ignore_result = True


@app.task(autoretry_for=(ConnectionError,), max_retries=4, retry_backoff=1, retry_backoff_max=2)
def import_airport(batch_id: int, row: dict[str, str]) -> None:
    with Session.begin() as session:
        session.add(read_airport(batch_id, row))


def main() -> None:
    models.FOLDER.mkdir(parents=True, exist_ok=True)
    Base.metadata.create_all(models.engine)
    file = Path(sys.argv[1])
    rows = read_rows(file)
    with Session.begin() as session:
        batch = Batch(file=file.name, rows=len(rows))
        session.add(batch)
    for row in rows:
        import_airport.delay(batch.id, row)


if __name__ == "__main__":
    main()
