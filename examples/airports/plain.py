"""The same import with plain Celery, to compare. The batch commits first and the messages go after it, as is usual."""

import os
import sys
from pathlib import Path

from celery import Celery

from celery_guard.integrations.celery import files

from . import models, rows
from .models import BROKER, Base, Batch, new_session

files.register()  # the embedded broker, which is not Celery's
app = Celery("airports-plain", broker=BROKER)
app.conf.task_ignore_result = True
# Celery has two ways: acknowledge a message before the body runs (its default), or after it; and then a lost worker's goes back.
app.conf.task_acks_late = app.conf.task_reject_on_worker_lost = bool(os.environ.get("AIRPORTS_LATE_ACKS"))


@app.task(
    name="airports.plain.import_airport",
    autoretry_for=(ConnectionError,), max_retries=4, retry_backoff=1, retry_backoff_max=2,
)  # fmt: skip
def import_airport(batch_id: int, row: dict[str, str]) -> None:
    with new_session.begin() as session:
        session.add(rows.read_airport(batch_id, row))


def main() -> None:
    models.FOLDER.mkdir(parents=True, exist_ok=True)
    Base.metadata.create_all(models.engine)
    file = Path(sys.argv[1])
    found = rows.read_rows(file)
    with new_session.begin() as session:
        batch = Batch(file=file.name, rows=len(found))
        session.add(batch)
        session.flush()
        batch_id = batch.id
    for row in found:
        import_airport.delay(batch_id=batch_id, row=row)


if __name__ == "__main__":
    main()
