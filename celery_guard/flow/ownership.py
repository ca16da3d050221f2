"""An attempt's hold on its job, as this process knows it: what was granted, until when, and what is written under it.

The keeper of leases writes here what the store answers; the body asks through :class:`~celery_guard.flow.context.RunningJob`, which is
all of it that a body can reach.
"""

from __future__ import annotations

import time
from datetime import timedelta

from celery_guard.job.verdict import Granted
from celery_guard.store.protocol import Store, Transaction

__all__ = ["Ownership"]


class Ownership:
    """One granted claim, from the moment it was asked for until the attempt is settled."""

    def __init__(
        self, granted: Granted, store: Store, lease: timedelta, limit: timedelta | None, asked: float, task: str = ""
    ) -> None:
        self.granted = granted
        self.task = task
        self.lease = lease.total_seconds()
        self.limit = None if limit is None else limit.total_seconds()
        self.begun = self.renewed = asked
        #: The store said that somebody else owns the job, or may.
        self.lost = False
        #: A person asked for the job to stop.
        self.cancelled = granted.cancel
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
