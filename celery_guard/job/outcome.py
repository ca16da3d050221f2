"""How a body came back: what the integration saw, in the guard's own words.

``decide`` matches these exhaustively and turns each into a :class:`~celery_guard.job.settlement.Settlement`.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import Union

from .row import NewJob, StoredPayload, StoredResult
from .state import Reason

__all__ = [
    "Contended",
    "Failed",
    "HandedOver",
    "Held",
    "Ignored",
    "Interrupted",
    "OutOfTime",
    "Outcome",
    "Rejected",
    "Replaced",
    "RetryAsked",
    "Returned",
    "Stopped",
]


@dataclass(frozen=True, slots=True)
class Returned:
    """The body returned; ``result`` is its value encoded, ``follow`` what Celery hangs on it."""

    result: StoredResult | None
    follow: tuple[NewJob, ...] = ()


@dataclass(frozen=True, slots=True)
class Contended:
    """The body came to its end, and that could not be written: an open transaction is taking the key of what follows."""

    error: BaseException


@dataclass(frozen=True, slots=True)
class Failed:
    """The body raised. ``final``: no retry, whatever the contract says, and this is the reason."""

    error: BaseException
    final: Reason | None = None


@dataclass(frozen=True, slots=True)
class RetryAsked:
    """The body asked for another run (``self.retry``), with a new message where it changed the call, and its queue.

    ``bounded``: ``self.retry`` has looked whether it may be asked for once more.
    """

    error: BaseException | None
    #: None: by the contract's backoff.
    delay: timedelta | None
    payload: StoredPayload | None = None
    queue: str | None = None
    bounded: bool = True


@dataclass(frozen=True, slots=True)
class Replaced:
    """The body replaced itself by a message that carries on under its id; ``follow`` was sent along with it."""

    by: NewJob
    follow: tuple[NewJob, ...] = ()


@dataclass(frozen=True, slots=True)
class HandedOver:
    """The body replaced itself by a canvas whose last step will come back under its id."""

    follow: tuple[NewJob, ...]


@dataclass(frozen=True, slots=True)
class Ignored:
    """The body raised Celery's ``Ignore``: done, with no result."""


@dataclass(frozen=True, slots=True)
class Rejected:
    """The body raised Celery's ``Reject``."""

    error: BaseException
    requeue: bool


@dataclass(frozen=True, slots=True)
class Stopped:
    """The body let an :class:`~celery_guard.errors.Interruption` pass: cancelled, out of time, or no longer the owner."""

    error: BaseException


@dataclass(frozen=True, slots=True)
class OutOfTime:
    """The attempt used up its limit, and its process is ended for it: nobody here will tell Celery."""

    error: BaseException


@dataclass(frozen=True, slots=True)
class Interrupted:
    """The worker is going down (``by_shutdown``), or the body tried to end the process."""

    error: BaseException
    by_shutdown: bool


@dataclass(frozen=True, slots=True)
class Held:
    """The body was not called: this process does not know the version of the message, or the key that it is encrypted with."""

    error: BaseException
    #: How long the job has been held for that; None where this is the first time.
    waited: timedelta | None = None


Outcome = Union[
    Returned,
    Failed,
    RetryAsked,
    Replaced,
    HandedOver,
    Ignored,
    Rejected,
    Stopped,
    OutOfTime,
    Interrupted,
    Contended,
    Held,
]
