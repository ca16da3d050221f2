"""The app, and the one task: import a row of a file."""

from celery import Celery
from celery_guard import Contract, Guard, GuardedTask, Retry

from .models import BROKER, DATABASE, Airport

app = Celery("airports", broker=BROKER)
app.conf.task_ignore_result = True
guard = Guard(app, store=DATABASE)


class InvalidRow(ValueError):
    """This row will never be an airport."""


def read_airport(batch_id: int, row: dict[str, str]) -> Airport:
    """Make an airport of a row. Raises ``InvalidRow``."""
    try:
        latitude, longitude = float(row["latitude"]), float(row["longitude"])
    except ValueError as error:
        raise InvalidRow(f"{row['iata']}: a coordinate is no number") from error
    if not (-90 <= latitude <= 90 and -180 <= longitude <= 180):
        raise InvalidRow(f"{row['iata']}: {latitude}, {longitude} is not on this planet")
    return Airport(
        batch_id=batch_id, iata=row["iata"], name=row["name"], city=row["city"], state=row["state"],
        country=row["country"], latitude=latitude, longitude=longitude,
    )  # fmt: skip


@app.task(
    base=GuardedTask,
    bind=True,
    contract=Contract(
        owner="data team",  # who is asked about the rows that could not be imported
        key=("batch_id", "row.iata"),  # a row is imported once a batch, however often it is sent
        retry=Retry(max_attempts=5, base=0.2, cap=2, max_crashes=10, never=(InvalidRow,)),
    ),
)
def import_airport(self, batch_id: int, row: dict[str, str]) -> None:
    # What is written here commits together with the job's end: both, or neither.
    self.job.transaction().add(read_airport(batch_id, row))
