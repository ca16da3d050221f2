"""What kind of failure an exception is."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from enum import Enum

__all__ = ["Classified", "FailureClass"]


class FailureClass(str, Enum):
    """What an exception says about trying again."""

    #: Likely to pass by itself: a timeout, a lost connection, a busy server.
    TRANSIENT = "transient"
    #: Somebody asks for fewer calls.
    THROTTLED = "throttled"
    #: The same call will fail the same way: a programming error, a refusal.
    PERMANENT = "permanent"
    #: Nobody said, and it cannot be known.
    UNKNOWN = "unknown"
    #: No failure: a body or a worker that says what is to happen (retry, ignore, reject, stop).
    CONTROL = "control"

    __str__ = str.__str__


@dataclass(frozen=True, slots=True)
class Classified:
    """An exception, read."""

    failure_class: FailureClass
    #: How long the other side asks to be left alone.
    floor: timedelta | None = None
