"""The app under chaos: every task is guarded. Bodies say when they are entered and when they return, in one file.

Where ``APP_TRACE`` names a file, every call of the store is written down there, by every process (see ``tests.model.trace``), and beside it
when workers came up and relays had their turns.
"""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from typing import Any

from celery import Celery, chain, chord, group
from celery.signals import worker_ready
from sqlalchemy import Engine, create_engine, text
from sqlalchemy.pool import NullPool

from celery_guard import Contract, Guard, Retry
from celery_guard.integrations.celery.runtime import runtime_of
from tests.integration.app import app as base
from tests.integration.app import mark
from tests.model.trace import Recorder

from .plan import CRASHES, POISONOUS, nap
from .turns import took_turn

__all__ = [
    "app", "book", "chain", "chord", "fails", "found", "group", "guard", "late", "once", "part", "poison", "shop", "tables",
    "total",
]  # fmt: skip

app = Celery(
    "tests.chaos.app",
    broker=os.environ["APP_BROKER"],
    backend=os.environ.get("APP_BACKEND"),
    task_cls="celery_guard.integrations.celery.task:GuardedTask",
)
app.conf.update(base.conf.changes)
guard = Guard(app)

#: What happens here is nobody's fault, so no number of deaths is too many.
STURDY = Contract(retry=Retry(max_attempts=5, base=0.05, cap=0.5, max_crashes=CRASHES, on=(ConnectionError,)))


def _returns(self: Any, value: int) -> int:
    """The last thing that a body does."""
    mark(f"return {value}", self)
    return value


@app.task(bind=True, shared=False, contract=STURDY)
def part(self: Any, before: int, number: int, failures: int = 0, seconds: float = -1) -> int:
    """Works for a while, fails the first times, and adds up."""
    mark("enter", self)
    time.sleep(nap(number) if seconds < 0 else seconds)
    if self.request.retries < failures:
        raise ConnectionError("not yet")
    return _returns(self, before + number)


@app.task(bind=True, shared=False, contract=STURDY, acks_late=True, reject_on_worker_lost=True)
def late(self: Any, number: int) -> int:
    """As ``part``, acknowledged when it has ended."""
    mark("enter", self)
    time.sleep(nap(number))
    return _returns(self, number)


@app.task(bind=True, shared=False, contract=STURDY)
def total(self: Any, values: list[int]) -> int:
    """The body of a chord."""
    mark("enter", self)
    return _returns(self, sum(values))


@app.task(bind=True, shared=False, contract=Contract(key="number", retry=STURDY.retry))
def once(self: Any, number: int) -> int:
    """One outcome for each number."""
    mark("enter", self)
    time.sleep(nap(number))
    return _returns(self, number)


@app.task(
    bind=True,
    shared=False,
    contract=Contract(retry=Retry(max_attempts=3, base=0.05, cap=0.2, max_crashes=CRASHES, never=(ValueError,))),
)
def fails(self: Any, *, for_good: bool) -> None:
    """Never goes well: for good at once, or after its retries."""
    mark("enter", self)
    raise ValueError("never") if for_good else ConnectionError("not today")


@app.task(bind=True, shared=False, contract=Contract(retry=Retry(max_crashes=POISONOUS)))
def poison(self: Any) -> None:
    """Kills whoever runs it."""
    mark("enter", self)
    os.kill(os.getpid(), signal.SIGKILL)


@app.task(bind=True, shared=False, contract=STURDY)
def found(self: Any, order: str, number: int) -> int:
    """The order that this job was committed with is there."""
    mark("enter", self)
    engine = shop()
    with engine.connect() as connection:
        there = connection.scalar(text("SELECT COUNT(*) FROM chaos_order WHERE name = :name"), {"name": order})
    if there != 1:
        mark(f"missing {order}", self)
        raise LookupError(order)
    return _returns(self, number)


@app.task(bind=True, shared=False, contract=STURDY)
def book(self: Any, number: int, child: str) -> int:
    """Writes, and enqueues, with its own end."""
    mark("enter", self)
    self.job.transaction().execute(text("INSERT INTO chaos_booking (job) VALUES (:job)"), {"job": self.job.id})
    part.apply_async((0, number), task_id=child)
    time.sleep(nap(number))
    return _returns(self, number)


def shop() -> Engine:
    """The user's own connections to the database that the store is in."""
    return create_engine(guard.settings.store, poolclass=NullPool)


def tables() -> None:
    """Make the user's tables."""
    with shop().begin() as connection:
        connection.execute(text("CREATE TABLE chaos_order (name VARCHAR(100) PRIMARY KEY)"))
        connection.execute(text("CREATE TABLE chaos_booking (job VARCHAR(100))"))


class _Watched(Recorder):
    """A store that also writes down every turn of a relay: it asks for a slot, or for what is due."""

    def hold(self, name: str, *given: Any) -> Any:
        if name == "relay:0":
            took_turn(_TURNS, "relay")
        return self._inner.hold(name, *given)

    def next_due(self) -> Any:
        took_turn(_TURNS, "relay")
        return self._inner.next_due()


if "APP_TRACE" in os.environ:
    _TURNS = Path(os.environ["APP_TRACE"]).with_name("turns")
    _runtime = runtime_of(app)
    setattr(_runtime, "store", _Watched(_runtime.store, Path(os.environ["APP_TRACE"])))  # noqa: B010
    worker_ready.connect(lambda **_: took_turn(_TURNS, "worker"), weak=False)
