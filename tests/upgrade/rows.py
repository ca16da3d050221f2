"""What a fleet of two versions has left in its store, whatever version the tables are of."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any, Protocol

import redis
from sqlalchemy import create_engine, text

from celery_guard.job.state import State
from celery_guard.store import open_store
from celery_guard.store.sql import schema

__all__ = ["RedisRows", "Rows", "SqlRows"]


class Rows(Protocol):
    """The rows of a store, and what bodies have written with the end of their job."""

    #: The version that the last release makes, and the one of this code; the same where nothing is to be upgraded.
    versions: tuple[str, str]

    def make(self) -> None:
        """Have a place for what bodies write with the end of their job."""
        ...

    def states(self) -> Counter[str]:
        """How many jobs are in each state."""
        ...

    def version(self) -> str: ...

    def charged(self, marks: Iterable[str]) -> Counter[str]:
        """The orders that were charged, and how often; ``marks`` are those of bodies."""
        ...

    def left(self) -> list[Any]:
        """What has not succeeded, and why."""
        ...

    def close(self) -> None: ...


class SqlRows:
    """In a database."""

    versions = ("0001", schema.HEAD)

    def __init__(self, url: str) -> None:
        self._engine = create_engine(url)

    def make(self) -> None:
        with self._engine.begin() as connection:
            connection.execute(text("CREATE TABLE shop_charge (id VARCHAR(40))"))

    def states(self) -> Counter[str]:
        with self._engine.connect() as connection:
            return Counter(connection.execute(text("SELECT state FROM guard_job")).scalars())

    def version(self) -> str:
        with self._engine.connect() as connection:
            return str(connection.execute(text("SELECT version_num FROM guard_version")).scalar_one())

    def charged(self, marks: Iterable[str]) -> Counter[str]:
        with self._engine.connect() as connection:
            return Counter(connection.execute(text("SELECT id FROM shop_charge")).scalars())

    def left(self) -> list[Any]:
        found = text(
            "SELECT j.id, j.task, j.state, j.reason, j.attempts, j.crashes, j.publications, f.type_name, f.message FROM guard_job j "
            "LEFT JOIN guard_failure f ON f.job = j.id AND f.fence = j.fence WHERE j.state <> 'succeeded'"
        )
        with self._engine.connect() as connection:
            return [tuple(row) for row in connection.execute(found)]

    def close(self) -> None:
        self._engine.dispose()


class RedisRows:
    """On a Redis server, whose keys are the same in both versions: this code's store reads them."""

    versions = ("1", "1")

    def __init__(self, url: str) -> None:
        self._url = url
        self._store = open_store(url)

    def make(self) -> None:
        """Nothing: bodies leave marks, for no transaction of theirs is joined."""

    def states(self) -> Counter[str]:
        return Counter({state.value: count for state, count in self._store.counts().items()})

    def version(self) -> str:
        with redis.Redis.from_url(self._url.partition("?")[0], decode_responses=True) as client:
            [key] = [key for key in client.scan_iter(count=1000) if key.endswith(":store")]
            return str(client.hget(key, "version"))

    def charged(self, marks: Iterable[str]) -> Counter[str]:
        return Counter(what.removeprefix("charged ") for what in marks if what.startswith("charged "))

    def left(self) -> list[Any]:
        return self._store.jobs(states=[state for state in State if state is not State.SUCCEEDED], limit=1000)

    def close(self) -> None:
        self._store.close()
