"""Moves that bring a job to where a test begins, and the bounded wait.

Each asserts that the store did it, so that a test which starts from a running job fails at the start, by name.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from typing import Any, TypeVar

from celery_guard.job.row import Attempt, Job, NewJob, Outgoing
from celery_guard.job.verdict import Accepted, Granted
from celery_guard.store.protocol import Store

from .builders import LONG, NONE, SOON, dead, new_id, new_job, recovered, succeeded

__all__ = [
    "accept",
    "claim",
    "die",
    "eventually",
    "found",
    "lapse",
    "lease_of",
    "lose",
    "publish",
    "row_of",
    "start",
    "store_now",
    "succeed",
    "suspect",
    "take",
    "taken_ids",
]

T = TypeVar("T")

_Row = TypeVar("_Row", Attempt, Outgoing)

#: Above any hiccup of a busy machine; only reached by a test that fails.
PATIENCE = 30.0


def eventually(probe: Callable[[], T]) -> T:
    """The first answer of ``probe`` that is true; fails when there was none within the patience."""
    until = time.monotonic() + PATIENCE
    while True:
        answer = probe()
        if answer:
            return answer
        assert time.monotonic() < until, f"{probe} had not come true after {PATIENCE:.0f} s; last answer: {answer!r}"
        time.sleep(0.01)


def row_of(id: str, read: Callable[[], Sequence[_Row]]) -> _Row:
    """The job's row, once it is among those that are read."""
    [row] = eventually(lambda: [row for row in read() if row.id == id])
    return row


def accept(store: Store, *jobs: NewJob) -> None:
    """Have the jobs accepted, all of them."""
    assert store.enqueue(jobs) == [Accepted(job.id) for job in jobs]


def found(store: Store, id: str) -> Job:
    """The job, which has to be there."""
    job = store.job(id)
    assert job is not None, f"the store has no job {id}"
    return job


def store_now(store: Store) -> datetime:
    """The store's clock, as read off a row that it has just accepted."""
    probe = new_job(task="probe.clock", delay=timedelta(days=365))
    accept(store, probe)
    return found(store, probe.id).created


def take(store: Store, token: str | None = None, limit: int = 1000, hold: timedelta = LONG) -> list[Outgoing]:
    return store.take(token or new_id(), limit, hold)


def taken_ids(store: Store, **given: Any) -> list[str]:
    return [row.id for row in take(store, **given)]


def publish(store: Store, *jobs: NewJob, suspect_after: timedelta = LONG) -> None:
    """Accept the jobs and do with them what a relay does."""
    accept(store, *jobs)
    token = new_id()
    ids = [job.id for job in jobs]
    assert sorted(taken_ids(store, token=token)) == sorted(ids)
    assert store.sent(token, ids, suspect_after) == len(ids)


def claim(store: Store, id: str, owner: str = "worker-1", lease: timedelta = LONG) -> Granted:
    """Claim a job that has to be free."""
    verdict = store.claim(id, owner, lease)
    assert isinstance(verdict, Granted), verdict
    return verdict


def lease_of(granted: Granted) -> tuple[str, int, str]:
    """What a lease is renewed by."""
    return granted.id, granted.fence, granted.owner


def start(store: Store, job: NewJob | None = None, *, owner: str = "worker-1", lease: timedelta = LONG) -> Granted:
    """Accept a job and start its first attempt."""
    job = job or new_job()
    accept(store, job)
    return claim(store, job.id, owner, lease)


def succeed(store: Store, job: NewJob | None = None, **given: Any) -> Granted:
    """Accept a job and have its first attempt succeed."""
    granted = start(store, job)
    assert store.settle(succeeded(granted, **given))
    return granted


def die(store: Store, job: NewJob | None = None, **given: Any) -> Granted:
    """Accept a job and have its first attempt fail for good."""
    granted = start(store, job)
    assert store.settle(dead(granted, **given))
    return granted


def lapse(store: Store, job: NewJob | None = None, *, owner: str = "worker-1") -> tuple[Granted, Attempt]:
    """Start an attempt and let its lease lapse."""
    granted = start(store, job, owner=owner, lease=SOON)
    return granted, row_of(granted.id, lambda: store.lapsed(1000))


def lose(store: Store, job: NewJob | None = None, *, owner: str = "worker-1") -> Granted:
    """Start an attempt and have the sweep take the job from it, due at once."""
    granted, attempt = lapse(store, job, owner=owner)
    assert store.recover(attempt, recovered(attempt, delay=NONE, crashed=True))
    return granted


def suspect(store: Store, job: NewJob | None = None) -> Attempt:
    """Publish a job and let it wait for longer than it should."""
    job = job or new_job()
    publish(store, job, suspect_after=SOON)
    return row_of(job.id, lambda: store.suspects(1000))
