"""What a row of a file says. There is no Celery here: the rules of the import are plain functions."""

import csv
import gzip
from pathlib import Path

from .models import Airport


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


def read_rows(file: Path) -> list[dict[str, str]]:
    opened = gzip.open if file.suffix == ".gz" else open
    with opened(file, "rt", newline="", encoding="utf-8") as lines:
        return list(csv.DictReader(lines))
