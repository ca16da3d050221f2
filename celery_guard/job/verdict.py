"""What the store answers. Expected outcomes are values; match them exhaustively.

Accepting a job answers ``Accepted | Duplicate | Conflict | Busy`` (``Buffered`` where it is written later); claiming one answers
``Granted | Leased | NotDue | Settled | Missing``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Union

from .instant import Instant
from .row import StoredFailure, StoredResult
from .state import Reason, State

__all__ = [
    "Accepted",
    "Buffered",
    "Busy",
    "Claimed",
    "Conflict",
    "Duplicate",
    "Enqueued",
    "Granted",
    "Leased",
    "Missing",
    "NotDue",
    "Settled",
]


@dataclass(frozen=True, slots=True)
class Accepted:
    """The job's row is written; it counts when the transaction commits."""

    id: str
    #: The row follows the job that holds its key, and will be given that job's outcome.
    holder: str | None = None


@dataclass(frozen=True, slots=True)
class Duplicate:
    """The same key (or id) and payload were accepted before; nothing was written. ``holder`` is that job's id."""

    id: str
    holder: str
    state: State


@dataclass(frozen=True, slots=True)
class Conflict:
    """The same key (or id) was accepted with another payload; nothing was written."""

    id: str
    holder: str
    state: State


@dataclass(frozen=True, slots=True)
class Busy:
    """Another open transaction is taking the key; nothing was written."""

    id: str


@dataclass(slots=True)
class Buffered:
    """Not written yet. It is written with all others of its transaction before that, or its savepoint, commits."""

    id: str
    #: What the database answered when it was written; None until then.
    answer: Accepted | None = None
    #: Told of the answer.
    heard: Callable[[Accepted], None] | None = field(default=None, compare=False, repr=False)

    def written(self, answer: Accepted) -> None:
        """Called by the door when the row is written."""
        self.answer = answer
        if self.heard is not None:
            self.heard(answer)


Enqueued = Union[Accepted, Duplicate, Conflict, Busy, Buffered]


@dataclass(frozen=True, slots=True)
class Granted:
    """This attempt owns the job, until its lease ends, as (fence, owner)."""

    id: str
    fence: int
    owner: str
    generation: int
    #: Claims so far, this one included, without those that were not charged.
    attempts: int
    crashes: int
    retries: int
    #: A person asked for the job to stop: settle it as cancelled without the body.
    cancel: bool
    #: How long until the deadline; None without one. Not positive: settle it as expired without the body.
    remaining: timedelta | None
    deadline: Instant | None
    #: How long ago the job was accepted.
    age: timedelta
    tenant: str | None
    key: str | None
    correlation_id: str | None
    #: The job that holds this one's key: settle with its outcome, without the body.
    holder: str | None
    root_id: str | None = None
    #: When the job was accepted, by the store's clock.
    created: Instant | None = None
    #: How often in a row the job was interrupted before.
    interruptions: int = 0


@dataclass(frozen=True, slots=True)
class Leased:
    """Another attempt holds a live lease (or one that the sweep has yet to take). The store will bring the job back."""

    id: str
    owner: str


@dataclass(frozen=True, slots=True)
class NotDue:
    """The job waits for a later time, or for something that holds it. The relay will publish it then."""

    id: str
    reason: Reason | None


@dataclass(frozen=True, slots=True)
class Settled:
    """The job has ended. ``tell``: this delivery, and no other, is to tell Celery the stored outcome."""

    id: str
    state: State
    reason: Reason | None
    tell: bool
    result: StoredResult | None = None
    failure: StoredFailure | None = None
    #: The row's fence, to note under it that Celery was told.
    fence: int = 0


@dataclass(frozen=True, slots=True)
class Missing:
    """The store has no row of this id."""

    id: str


Claimed = Union[Granted, Leased, NotDue, Settled, Missing]
