"""What has happened to a job, told after the fact to those who watch: logs, traces, observers of your own.

An event is a fact, in the past tense: frozen, without a job's arguments or its result, and nothing that is done about it changes the
job. It is told by the process that did it, right after it was written, in the thread that did it. So a process that is killed in between
has done it and told nobody: what has to be counted exactly is counted by the store (:mod:`celery_guard.watch.metrics`).

Of each ``Claimed`` the same thread tells exactly one of ``Settled``, ``Fenced`` and ``Abandoned`` later, unless it is killed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Union

from .row import Attempt, NewJob, Outgoing, StoredFailure
from .settlement import Settlement
from .state import Reason, State
from .verdict import Accepted, Buffered, Conflict, Duplicate, Granted
from .verdict import Enqueued as Answer

__all__ = [
    "Abandoned",
    "Cancelled",
    "Claimed",
    "Conflicted",
    "Duplicated",
    "Ended",
    "Enqueued",
    "Event",
    "Fenced",
    "Hears",
    "Ignored",
    "Published",
    "Recovered",
    "Refused",
    "RenewedLate",
    "Replayed",
    "Settled",
    "Tell",
    "claimed",
    "enqueued",
    "hears_all",
    "published",
    "recovered",
    "settled",
    "tell_nobody",
]


@dataclass(frozen=True, slots=True)
class Told:
    """Which job it is about."""

    id: str
    task: str


@dataclass(frozen=True, slots=True)
class Enqueued(Told):
    """The row is written. It counts when the caller's transaction commits, of which nothing is told."""

    queue: str
    tenant: str | None
    #: The hash of the key; None for a job without one.
    key: str | None
    correlation_id: str | None
    delay: timedelta
    #: The job whose outcome this one will be given, where it follows one.
    holder: str | None = None


@dataclass(frozen=True, slots=True)
class Duplicated(Told):
    """It was enqueued before, as ``holder``: nothing was written."""

    key: str | None
    holder: str


@dataclass(frozen=True, slots=True)
class Conflicted(Told):
    """The key was taken by ``holder`` with another payload: nothing was written."""

    key: str | None
    holder: str


@dataclass(frozen=True, slots=True)
class Published(Told):
    """The broker has the message."""

    queue: str
    #: Which publication since the last claim it was: from 1.
    publication: int


@dataclass(frozen=True, slots=True)
class Refused(Told):
    """The broker, or the codec, would not have the message. It is offered again after ``delay``."""

    queue: str
    error: str
    delay: timedelta


@dataclass(frozen=True, slots=True)
class Claimed(Told):
    """A delivery was granted the job: an attempt begins."""

    fence: int
    attempt: int
    generation: int
    retries: int
    worker: str
    tenant: str | None
    key: str | None
    correlation_id: str | None
    root_id: str | None
    #: Since the job was accepted.
    age: timedelta


@dataclass(frozen=True, slots=True)
class Ignored(Told):
    """A delivery met a job that runs elsewhere, is not due, or has ended: a duplicate. Nothing was done."""

    why: str
    worker: str


@dataclass(frozen=True, slots=True)
class Settled(Told):
    """An attempt's end is written: for good, or for another run after ``delay``."""

    claim: Claimed
    state: State
    reason: Reason | None
    delay: timedelta
    failure: StoredFailure | None
    elapsed: timedelta


@dataclass(frozen=True, slots=True)
class Fenced(Told):
    """An attempt came back when it was not the owner any more. What it would have written is void."""

    claim: Claimed
    elapsed: timedelta


@dataclass(frozen=True, slots=True)
class Abandoned(Told):
    """An attempt could not write its end: the store was out, or the process is going down. The job will be brought back."""

    claim: Claimed
    error: str
    elapsed: timedelta


@dataclass(frozen=True, slots=True)
class RenewedLate(Told):
    """A lease was renewed after it had lapsed, before anybody had taken the job. ``late``: how long after."""

    fence: int
    late: timedelta


@dataclass(frozen=True, slots=True)
class Recovered(Told):
    """The sweep took the job from an owner whose lease lapsed (``crashed``), or found that its message was lost.

    ``age``: how long ago the attempt began, or was published. ``leased``: from its start to the end of its lease.
    """

    queue: str
    fence: int
    owner: str
    attempt: int
    retries: int
    age: timedelta
    leased: timedelta
    state: State
    reason: Reason | None
    delay: timedelta
    crashed: bool
    failure: StoredFailure | None


@dataclass(frozen=True, slots=True)
class Ended(Told):
    """A relay ended a job that could not be published: its deadline was over, or the broker would not have it."""

    state: State
    reason: Reason | None
    failure: StoredFailure | None


@dataclass(frozen=True, slots=True)
class Cancelled(Told):
    """A person or a program asked for the job to stop. ``answer``: ``cancelled``, ``asked`` or ``too late``."""

    answer: str


@dataclass(frozen=True, slots=True)
class Replayed(Told):
    """A dead job was sent again. ``answer``: ``replayed`` or ``skipped``, and why."""

    answer: str
    why: str = ""


Event = Union[
    Enqueued, Duplicated, Conflicted, Published, Refused, Claimed, Ignored, Settled, Fenced, Abandoned, RenewedLate,
    Recovered, Ended, Cancelled, Replayed,
]  # fmt: skip

#: Tells whoever watches. Raises nothing.
Tell = Callable[[Event], None]


#: Whether anybody who watches takes note of such an event. Raises nothing.
Hears = Callable[[type[Event]], bool]


def tell_nobody(event: Event) -> None:
    """Nobody watches."""


def hears_all(kind: type[Event]) -> bool:
    """Whoever watches takes note of everything."""
    return True


def enqueued(job: NewJob, answer: Answer) -> Event | None:
    """What there is to tell of the store's answer to a new job; nothing where it is not accepted and not known."""
    match answer:
        case Accepted(holder=holder):
            return Enqueued(
                job.id, job.task, job.queue, job.tenant, job.key, job.correlation_id, job.delay, holder
            )  # fmt: skip
        case Buffered():
            return Enqueued(job.id, job.task, job.queue, job.tenant, job.key, job.correlation_id, job.delay)
        case Duplicate(holder=holder):
            return Duplicated(job.id, job.task, job.key, holder)
        case Conflict(holder=holder):
            return Conflicted(job.id, job.task, job.key, holder)
    return None


def claimed(granted: Granted, task: str, worker: str) -> Claimed:
    """What there is to tell of a claim that was granted."""
    return Claimed(
        granted.id, task, granted.fence, granted.attempts, granted.generation, granted.retries, worker, granted.tenant,
        granted.key, granted.correlation_id, granted.root_id, granted.age,
    )  # fmt: skip


def settled(claim: Claimed, written: Settlement, elapsed: timedelta) -> Settled:
    """What there is to tell of an attempt's end that was written."""
    return Settled(
        claim.id, claim.task, claim, written.state, written.reason, written.delay, written.failure, elapsed
    )  # fmt: skip


def recovered(attempt: Attempt, written: Settlement) -> Recovered:
    """What there is to tell of a row that the sweep has moved."""
    return Recovered(
        attempt.id, attempt.task, attempt.queue, attempt.fence, attempt.owner, attempt.attempts, attempt.retries, attempt.age,
        attempt.leased, written.state, written.reason, written.delay,
        attempt.state is State.RUNNING, written.failure,
    )  # fmt: skip


def published(row: Outgoing) -> Published:
    """What there is to tell of a message that the broker has."""
    return Published(row.id, row.task, row.queue, row.publications + 1)
