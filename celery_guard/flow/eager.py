"""A job that is run where it is enqueued, without a relay and a worker: ``task_always_eager`` and ``.apply()``.

    row -> claim -> body -> settle, and once more at once if it is to be retried

The journey is the same, and so are its rows. What differs is only this: nobody waits for a retry, and inside a transaction of the
caller's all of it goes through that transaction, whose rows nobody else can see. So no lease has to be kept alive there.
"""

from __future__ import annotations

import time
from dataclasses import replace
from datetime import timedelta

from celery_guard.contract.timing import Timing
from celery_guard.job.row import Job, NewJob, StoredFailure, StoredPayload, StoredResult
from celery_guard.job.settlement import Settlement
from celery_guard.job.state import State
from celery_guard.job.verdict import Claimed, Enqueued
from celery_guard.store.door import AttemptDoor, Transaction
from celery_guard.store.protocol import Store

from .ownership import Ownership

__all__ = ["EagerStore", "NoKeeper"]


class EagerStore:
    """What one eager job asks of a store, or of a transaction of the caller's. A retry of it is due at once."""

    def __init__(self, inner: Store | AttemptDoor) -> None:
        self._inner = inner
        #: The last message of the job, by its generation.
        self._payload: tuple[int, StoredPayload] | None = None

    def enqueue(self, job: NewJob) -> Enqueued:
        """Write the row."""
        self._payload = 0, job.payload
        [answer] = self._inner.enqueue([job])
        return answer

    def claim(self, id: str, owner: str, lease: timedelta) -> Claimed:
        """Take the job for one attempt, or say why not."""
        return self._inner.claim(id, owner, lease)

    def settle(self, settlement: Settlement) -> bool:
        """Write the attempt's end."""
        if settlement.payload is not None and self._payload is not None:
            self._payload = self._payload[0] + 1, settlement.payload
        if settlement.state is State.PENDING:
            settlement = replace(settlement, delay=timedelta(0))
        return self._inner.settle(settlement)

    def outcome(self, id: str) -> tuple[State, StoredResult | None, StoredFailure | None] | None:
        """The stored outcome of another job."""
        return self._inner.outcome(id)

    def begin(self) -> Transaction:
        """A transaction for the body's own writes; a savepoint inside the caller's."""
        return self._inner.begin()

    def payload(self, id: str, generation: int | None = None) -> StoredPayload | None:
        """The last message of the job."""
        return None if self._payload is None or self._payload[0] != generation else self._payload[1]

    def job(self, id: str) -> Job | None:
        """Nothing that an eager job needs to know."""
        return None

    def note(self, id: str, failure: StoredFailure) -> None:
        """An attempt that lost its job. Whoever watches is told of it."""


class NoKeeper:
    """Keeps no lease: inside a transaction that nobody else sees, nobody can take the job."""

    def hold(self, own: Ownership, lease: timedelta, timing: Timing) -> None:
        """The attempt begins."""

    def let_go(self, own: Ownership) -> None:
        """The attempt has ended."""

    def renew_now(self, own: Ownership) -> None:
        """It is still owned."""
        own.renewed = time.monotonic()
