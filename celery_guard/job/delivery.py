"""One delivery of a job: what arrived at a worker, and what it is told in the end.

The ending is what the integration turns into the language of its side (a return value, an exception, nothing at all).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Union

from celery_guard.contract.contract import Effective
from celery_guard.contract.sensitive import NOTHING_HIDDEN, Hidden

from .decide import Next
from .verdict import Settled

__all__ = ["Again", "Dead", "Delivery", "Done", "Ending", "HandBack", "Nothing", "Stale", "Unheard", "Withdrawn"]


@dataclass(frozen=True, slots=True)
class Delivery:
    """A message that reached a worker: whose it is, and whether anything at Celery's side waits for its outcome."""

    id: str
    task: str
    contract: Effective
    worker: str
    tells_success: bool
    tells_failure: bool
    #: What nothing that is written or told may show.
    hidden: Hidden = NOTHING_HIDDEN


@dataclass(frozen=True, slots=True)
class Done:
    """Settled as succeeded: tell Celery the body's value."""

    fence: int
    #: Nobody waits for it: the row says so already, and does not have to learn that Celery was told.
    told: bool = False


@dataclass(frozen=True, slots=True)
class Again:
    """Settled as pending: the relay brings the job back after ``delay``."""

    next: Next
    error: BaseException | None


@dataclass(frozen=True, slots=True)
class Dead:
    """Settled as dead (or dropped): tell Celery the failure."""

    fence: int
    next: Next
    error: BaseException


@dataclass(frozen=True, slots=True)
class Withdrawn:
    """Settled as cancelled: tell Celery it was revoked."""

    fence: int


@dataclass(frozen=True, slots=True)
class HandBack:
    """Ended before, and this delivery is the one to tell Celery what is stored."""

    settled: Settled


@dataclass(frozen=True, slots=True)
class Nothing:
    """Not for this delivery to do anything about: running elsewhere, not due, or ended and told."""

    why: str


@dataclass(frozen=True, slots=True)
class Stale:
    """The settle was refused: this attempt does not own the job any more. Say nothing to anybody."""

    fence: int


@dataclass(frozen=True, slots=True)
class Unheard:
    """The store has no such job."""


Ending = Union[Done, Again, Dead, Withdrawn, HandBack, Nothing, Stale, Unheard]
