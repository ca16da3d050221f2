"""The job that is running here, as its body sees it: ``self.job`` and ``celery_guard.current_job``."""

from __future__ import annotations

import hashlib
import time
from contextvars import ContextVar
from datetime import datetime, timedelta
from typing import Any

from celery_guard.errors import DeadlinePassed, JobCancelled, LeaseLost
from celery_guard.job.instant import instant_to_datetime
from celery_guard.job.progress import progress_text

from .ownership import Keeper, Ownership

__all__ = ["RunningJob", "current_job", "ownership_of", "running_job"]

#: The innermost guarded job of this task, thread or greenlet.
running_job: ContextVar[RunningJob | None] = ContextVar("celery_guard_running_job", default=None)

#: ``check`` asks the store at most this often (seconds); in between it knows what the last renewal said.
_ASK_EVERY = 1.0


class RunningJob:
    """One attempt of a job, alive in this process.

    Everything that a body may ask of its job, and do with it, is here.
    """

    def __init__(self, ownership: Ownership, keeper: Keeper) -> None:
        self._ownership = ownership
        self._granted = ownership.granted
        self._keeper = keeper

    @property
    def id(self) -> str:
        """The job's id, which is Celery's task id."""
        return self._granted.id

    @property
    def key(self) -> str | None:
        """The hash of the job's key; None without one."""
        return self._granted.key

    @property
    def attempt(self) -> int:
        """Which attempt this is, from 1."""
        return self._granted.attempts

    @property
    def retries(self) -> int:
        """How often the job was retried, as Celery's ``request.retries`` counts."""
        return self._granted.retries

    @property
    def generation(self) -> int:
        """Which message of the job this is, from 0: raised where a retry or a replacement changed the call."""
        return self._granted.generation

    @property
    def fence(self) -> int:
        """The fencing token: strictly greater than that of every earlier attempt. Hand it to what you write to."""
        return self._granted.fence

    @property
    def owner(self) -> str:
        """Who holds the lease: this process, and which of its claims."""
        return self._granted.owner

    @property
    def tenant(self) -> str | None:
        """The tenant the job was accepted for."""
        return self._granted.tenant

    @property
    def deadline(self) -> datetime | None:
        """When the job must have ended, by the store's clock, aware, in UTC. The same in every attempt."""
        instant = self._granted.deadline
        return None if instant is None else instant_to_datetime(instant)

    @property
    def correlation_id(self) -> str | None:
        """The id that ties together all jobs that one request started."""
        return self._granted.correlation_id

    @property
    def elapsed(self) -> timedelta:
        """How long ago this attempt was claimed."""
        return self._ownership.elapsed

    def check(self) -> None:
        """Stop here if there is no reason to go on. Call it between steps and in loops.

        Asks the store at most once a second, so it is cheap enough for any loop.

        Raises:
            LeaseLost: another attempt may own the job by now.
            JobCancelled: a person asked for the job to stop.
            DeadlinePassed: the job's deadline or this attempt's limit is over.
        """
        own = self._ownership
        now = time.monotonic()
        if now - own.renewed >= _ASK_EVERY and not own.lost:
            self._keeper.renew_now(own)
        if not own.owned():
            own.lost = True
            raise LeaseLost(
                f"Job {self.id} (fence {self.fence}): the lease of this attempt was lost; another attempt may be running. "
                "Stop here and write nothing more."
            )
        if own.cancelled:
            raise JobCancelled(f"Job {self.id} was asked to stop.")
        remaining = self._granted.remaining
        if remaining is not None and self.elapsed >= remaining:
            raise DeadlinePassed(f"Job {self.id}: its deadline {self.deadline} is over.")
        if own.limit is not None and now - own.begun >= own.limit:
            raise DeadlinePassed(f"Job {self.id}: this attempt has used its {own.limit:g} s.")

    def progress(self, done: float, total: float | None = None, note: str = "") -> None:
        """Say how far this attempt is, for whoever asks for the job's status. Cheap: call it as often as you like.

        ``done`` and ``total`` are in a unit of yours; without a total nobody knows how much is left. ``note`` is a few words, up to 200
        characters, that operators and whoever polls the status may read.

        Nothing is asked of the store: the last of it is written with the next renewal of the lease, a third of it (10 s by default) after the
        last one, and with the end of the attempt. :meth:`check` beside it brings a renewal within a second. The next attempt starts without.

        Raises:
            TypeError: a number that is neither an int nor a float, or a note that is no text.
            ValueError: a number below 0, over 2**53 or not finite, more done than there is, a note that is too long, or any note in a task
                with sensitive fields: it would be stored and shown as it is.
        """
        own = self._ownership
        if note and own.private:
            raise ValueError(
                f"progress: {own.task} has sensitive fields (Contract.sensitive), and a note would be stored and shown as it is. "
                "To repair: give the numbers alone; what a log line says is masked."
            )
        own.progress = progress_text(done, total, note, own.elapsed)

    def transaction(self) -> Any:
        """A session on the store's database whose writes commit together with the end of this job, or not at all.

        Returns an SQLAlchemy ``Session``, the same one each time. Write with it, and enqueue as usual: the jobs join in. Do not commit
        it: that happens when the body has returned, in one transaction with the job's completion and its result, and only if this
        attempt still owns the job. If the body raises, everything is rolled back. So its effects happen exactly once.

        With the store in Django's database (``django://default``) it is a block, ``with job.transaction():``, in the transaction that
        Django's connection is in from then on: what the ORM writes there commits together with the end of this job.
        """
        return self._ownership.enlist().session

    def owned(self) -> bool:
        """Whether this attempt still owns the job, as far as the last answer of the store goes."""
        return self._ownership.owned()

    def downstream_key(self, name: str) -> str:
        """A stable idempotency key for a call to somebody else: the same in every attempt and replay of this job.

        A job with a key shares it with every other job of that key, be it enqueued after this one has died: one order is charged once,
        whoever sends it again. ``name`` tells several calls of one job apart. 32 hexadecimal digits.
        """
        return hashlib.sha256(f"{self.key or self.id}\0{name}".encode("utf-8", "surrogatepass")).hexdigest()[:32]

    def __repr__(self) -> str:
        return f"<RunningJob {self.id} attempt {self.attempt} fence {self.fence}>"


def ownership_of(job: RunningJob) -> Ownership:
    """The hold behind a running job; for the guard's own rooms, not for bodies."""
    return job._ownership


def current_job() -> RunningJob:
    """The guarded job that is running here, from anywhere below its body.

    Raises ``RuntimeError`` where none is: outside a worker, or in a task without a guard.
    """
    job = running_job.get()
    if job is None:
        raise RuntimeError(
            "No guarded job is running here: the task was called as a function, runs eagerly without a store, or has no guard. Let a "
            "worker run it, or `.apply()` with the setting store, or move what needs no job into a function of its own."
        )
    return job
