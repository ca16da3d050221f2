"""The app, and its one task: import a row of a file."""

from celery import Celery

from celery_guard import Contract, Guard, GuardedTask, Retry

from . import rows
from .models import BROKER, DATABASE

app = Celery("airports", broker=BROKER)
app.conf.task_ignore_result = True
guard = Guard(app, store=DATABASE)


@app.task(
    base=GuardedTask,
    bind=True,
    contract=Contract(
        owner="data team",  # who is asked about the rows that could not be imported
        key=("batch_id", "row.iata"),  # a row is imported once a batch, however often it is sent
        retry=Retry(max_attempts=5, base=0.2, cap=2, max_crashes=10, never=(rows.InvalidRow,)),
    ),
)
def import_airport(self: GuardedTask, batch_id: int, row: dict[str, str]) -> None:
    # What is written here commits together with the job's end: both, or neither.
    self.job.transaction().add(rows.read_airport(batch_id, row))
