"""An attempt's hold on its job, as this process knows it: what was granted, until when, and what is written under it.

The keeper of leases writes here what the store answers; the body asks through :class:`~celery_guard.flow.context.RunningJob`, which is
all of it that a body can reach.
"""

from __future__ import annotations

import time
from datetime import timedelta
from typing import TYPE_CHECKING, Protocol

from celery_guard.contract.timing import Timing
from celery_guard.job.row import Job, StoredFailure, StoredResult
from celery_guard.job.settlement import Settlement
from celery_guard.job.state import State
from celery_guard.job.verdict import Claimed, Granted

if TYPE_CHECKING:
    from celery_guard.store.protocol import Transaction

__all__ = ["Attempts", "Keeper", "Ownership"]


class Attempts(Protocol):
    """What one attempt asks of a store: the part of :class:`~celery_guard.store.protocol.Store` that a runner uses, as that has it."""

    def claim(self, id: str, owner: str, lease: timedelta) -> Claimed: ...

    def settle(self, settlement: Settlement) -> bool: ...

    def begin(self) -> Transaction: ...

    def outcome(self, id: str) -> tuple[State, StoredResult | None, StoredFailure | None] | None: ...

    def job(self, id: str) -> Job | None: ...

    def note(self, id: str, failure: StoredFailure) -> None: ...


class Keeper(Protocol):
    """Who keeps an attempt's lease alive: :class:`~celery_guard.flow.lease.LeaseKeeper`, or nobody where nobody can take the job."""

    def hold(self, own: Ownership, lease: timedelta, timing: Timing) -> None: ...

    def let_go(self, own: Ownership) -> None: ...

    def renew_now(self, own: Ownership) -> None: ...


class Ownership:
    """One granted claim, from the moment it was asked for until the attempt is settled."""

    def __init__(
        self,
        granted: Granted,
        store: Attempts,
        lease: timedelta,
        limit: timedelta | None,
        asked: float,
        task: str = "",
        *,
        private: bool = False,
    ) -> None:
        self.granted = granted
        self.task = task
        #: The task has sensitive fields.
        self.private = private
        self.lease = lease.total_seconds()
        self.limit = None if limit is None else limit.total_seconds()
        self.begun = self.renewed = asked
        #: The store said that somebody else owns the job, or may.
        self.lost = False
        #: A person asked for the job to stop.
        self.cancelled = granted.cancel
        #: What the body said last of how far it is, as the row keeps it. Goes with every renewal, and with the end.
        self.progress: str | None = None
        #: The transaction in which the body writes, once it has asked for one.
        self.enlisted: Transaction | None = None
        self._store = store

    @property
    def id(self) -> str:
        """The job's id."""
        return self.granted.id

    @property
    def fence(self) -> int:
        """The fence of this attempt."""
        return self.granted.fence

    @property
    def elapsed(self) -> timedelta:
        """How long ago the attempt was claimed."""
        return timedelta(seconds=time.monotonic() - self.begun)

    def owned(self) -> bool:
        """Whether the attempt still owns the job, as far as the last answer of the store goes."""
        return not self.lost and time.monotonic() - self.renewed <= self.lease

    def enlist(self) -> Transaction:
        """The transaction that is settled together with the attempt; begun where there is none."""
        if self.enlisted is None:
            self.enlisted = self._store.begin()
        return self.enlisted
