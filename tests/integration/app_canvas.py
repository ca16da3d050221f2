"""Canvas under faults: every task is guarded, Celery's own included, and members end in the way that they are asked for.

Marks begin with a tag, so that many tests can share one worker. Bodies whose id names a point die there (``celery_guard.testing.faults``).
"""

from __future__ import annotations

import os
import signal
import time
from typing import Any

from celery import Celery, chain, chord, group

from celery_guard import Contract, Guard, Retry
from celery_guard.errors import StoreUnavailableError
from celery_guard.flow.enqueue import enqueue
from celery_guard.integrations.celery import send
from celery_guard.testing.steps import install_from

from .app import app as base
from .app import flag, mark

__all__ = ["app", "chain", "chord", "group", "guard"]

app = Celery(
    "tests.integration.app_canvas",
    broker=os.environ["APP_BROKER"],
    backend=os.environ.get("APP_BACKEND"),
    task_cls="celery_guard.integrations.celery.task:GuardedTask",
)
app.conf.update(base.conf.changes)
app.conf.update(result_chord_retry_interval=0.2, task_publish_retry=False, database_create_tables_at_setup=True)
guard = Guard(app)


def _away_at_first(to: Any, jobs: Any) -> Any:
    """A store that cannot be reached three times, for a job whose id says so."""
    for job in jobs:
        if job.id.startswith("away-") and any(flag(f"{job.id}-{time}") for time in range(3)):
            raise StoreUnavailableError("The store is away, for a test")
    return enqueue(to, jobs)


vars(send)["enqueue"] = _away_at_first


@app.task(
    bind=True, shared=False, contract=Contract(retry=Retry(max_attempts=3, base=0.05, cap=0.1, on=(ConnectionError,)))
)
def part(self: Any, tag: str, n: int, how: str = "well") -> int:
    """A member: ends well, dies once, fails, is retried, or goes on until it is cancelled."""
    mark(f"{tag} part {n}", self)
    if how == "dies" and flag(f"{tag}-{n}"):
        os.kill(os.getpid(), signal.SIGKILL)
    if how == "fails":
        raise ValueError(f"{tag} {n}")
    if how == "retries" and self.request.retries < 2:
        raise ConnectionError(f"{tag} {n}")
    if how == "waits":
        for _ in range(3000):
            self.job.check()
            time.sleep(0.02)
    return n


@app.task(bind=True, shared=False)
def plus(self: Any, value: Any, tag: str, n: int, how: str = "well") -> int:
    """A step that goes on from a value; a list is summed up."""
    total = sum(value) if isinstance(value, list) else value
    mark(f"{tag} plus {n}", self)
    if how == "dies" and flag(f"{tag}-plus-{n}"):
        os.kill(os.getpid(), signal.SIGKILL)
    return int(total) + n


@app.task(bind=True, shared=False, contract=Contract(key=("tag", "n")))
def once(self: Any, tag: str, n: int) -> int:
    """One run for each tag and number."""
    mark(f"{tag} once {n}", self)
    return n


@app.task(bind=True, shared=False)
def whole(self: Any, values: list[int], tag: str) -> int:
    """The body of a chord."""
    mark(f"{tag} whole {values}", self)
    return sum(values)


@app.task(bind=True, shared=False)
def errback(self: Any, failed: str, tag: str) -> None:
    """An errback of the old style: a task of its own, with the id of what has failed."""
    mark(f"{tag} errback", self)


@app.task(bind=True, shared=False)
def becomes(self: Any, tag: str, what: str) -> Any:
    """Replaced by a canvas of which one member dies once."""
    mark(f"{tag} becomes {what}", self)
    if what == "chain":
        return self.replace(chain(part.s(tag, 1), plus.s(tag, 2, "dies")))
    if what == "group":
        return self.replace(group(part.s(tag, 1), part.s(tag, 2, "dies")))
    return self.replace(chord([part.s(tag, 1), part.s(tag, 2, "dies")], plus.s(tag, 0)))


@app.task(bind=True, shared=False)
def spawns(self: Any, tag: str) -> str:
    """Sends a child and has it as a child, then dies once before its end counts."""
    child = part.delay(tag, 1)
    mark(f"{tag} spawns", self)
    if flag(f"{tag}-spawns"):
        os.kill(os.getpid(), signal.SIGKILL)
    return str(child.id)


install_from(os.environ, app)
