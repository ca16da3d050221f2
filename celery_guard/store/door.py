"""Doors: transactions of somebody else's through which jobs are accepted; and those in which bodies write."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any, Protocol, runtime_checkable

from celery_guard.job.row import NewJob, StoredFailure, StoredResult
from celery_guard.job.settlement import Settlement
from celery_guard.job.state import State
from celery_guard.job.verdict import Claimed, Enqueued

__all__ = ["AsyncDoor", "AttemptDoor", "Door", "Transaction"]


@runtime_checkable
class Door(Protocol):
    """A transaction of the caller's, on the store's database, through which jobs are accepted."""

    def enqueue(self, jobs: Sequence[NewJob]) -> list[Enqueued]:
        """Write the rows with the caller's connection. Never begins, commits, rolls back or sets a savepoint."""
        ...


@runtime_checkable
class AttemptDoor(Door, Protocol):
    """A door through which a job can also be run, in the transaction that accepts it: what eager mode needs."""

    @property
    def commits_at_once(self) -> bool:
        """Whether there is no transaction that would keep the job from others."""
        ...

    def claim(self, id: str, owner: str, lease: timedelta) -> Claimed:
        """As :meth:`Store.claim`."""
        ...

    def settle(self, settlement: Settlement) -> bool:
        """As :meth:`Store.settle`."""
        ...

    def outcome(self, id: str) -> tuple[State, StoredResult | None, StoredFailure | None] | None:
        """As :meth:`Store.outcome`."""
        ...

    def begin(self) -> Transaction:
        """A savepoint inside the transaction. Raises ``NotImplementedError`` where the door knows none."""
        ...


@runtime_checkable
class AsyncDoor(Door, Protocol):
    """A transaction of a caller who has to wait with ``await``.

    Its ``enqueue`` cannot wait, so it buffers: it answers ``Buffered``, and the rows are written before the transaction, or the
    savepoint that is open now, commits. A commit whose buffer cannot be written fails.
    """

    async def aenqueue(self, jobs: Sequence[NewJob]) -> list[Enqueued]:
        """Write the rows now."""
        ...

    def at_once(self) -> Door:
        """The door that writes at once. Raises ``TransactionError`` where nobody can wait, outside :meth:`run`."""
        ...

    async def recognize(self) -> None:
        """Look whether this is the store's database. Raises ``WrongDatabaseError``; else the first write does."""
        ...

    async def run(self, work: Callable[[], Any]) -> Any:
        """Run ``work``, a plain function, in which ``enqueue`` writes at once."""
        ...


class Transaction(Protocol):
    """A transaction on the store's database, in which a body's own writes and its job's end commit together."""

    @property
    def session(self) -> Any:
        """What the body writes with: an SQLAlchemy ``Session``, or Django's ``atomic()``."""
        ...

    @property
    def door(self) -> Door:
        """Through which the jobs that the body enqueues join in."""
        ...

    def commit(self, settlement: Settlement) -> bool:
        """Settle and commit, as one; False, and everything rolled back, when the attempt is not the owner any more.

        Raises ``StoreUnavailableError`` when the database could not commit now (a deadlock, a serialization failure), or when it is
        not known whether it did; nothing may be settled then, the lease lapses and the row tells. What the database has against the
        body's own writes is raised as it is. Raises ``KeyBusy``, and everything is rolled back, where an open transaction is taking the
        key of what follows: then the attempt is to be settled as one that runs again.
        """
        ...

    def rollback(self) -> None:
        """Undo what the body wrote. Never raises."""
        ...
