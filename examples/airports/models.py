"""The tables: a batch for each file that is imported, and an airport for each of its rows."""

import os
from pathlib import Path
from typing import Any

from sqlalchemy import Engine, ForeignKey, create_engine, event
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column, sessionmaker

#: Everything lives in one folder: the database with the jobs in it, and the broker.
FOLDER = Path(os.environ.get("AIRPORTS_FOLDER", "airports-data")).resolve()
DATABASE = f"sqlite:///{FOLDER / 'airports.db'}"
BROKER = f"files://localhost{FOLDER / 'broker'}"

engine = create_engine(DATABASE, connect_args={"timeout": 30})
new_session = sessionmaker(engine)


@event.listens_for(Engine, "connect")
def _be_quick(connection: Any, _record: object) -> None:
    """SQLite need not wait for the disk here: what it has committed outlives a killed process, though not a power cut."""
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = NORMAL")


class Base(DeclarativeBase):
    pass


class Batch(Base):
    """A file that was accepted. It is there if, and only if, its jobs are."""

    __tablename__ = "batch"

    id: Mapped[int] = mapped_column(primary_key=True)
    file: Mapped[str]
    rows: Mapped[int]


class Airport(Base):
    """A row that was imported. No constraint keeps one from being written twice, on purpose: that would be seen."""

    __tablename__ = "airport"

    id: Mapped[int] = mapped_column(primary_key=True)
    batch_id: Mapped[int] = mapped_column(ForeignKey("batch.id"))
    iata: Mapped[str]
    name: Mapped[str]
    city: Mapped[str]
    state: Mapped[str]
    country: Mapped[str]
    latitude: Mapped[float]
    longitude: Mapped[float]
