"""Instants of the store's clock.

Whether a lease has lapsed, a job is due or a deadline is over is decided by one clock: the store's. Workers and publishers send
durations; the store adds them to its own time. An instant that leaves the store (a deadline that children inherit)
travels as the integer it is and comes back unchanged.
"""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from typing import NewType

__all__ = ["Instant", "instant_to_datetime", "microseconds"]

#: Microseconds since the Unix epoch, by the store's clock.
Instant = NewType("Instant", int)

_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
_MICROSECOND = timedelta(microseconds=1)


def microseconds(duration: timedelta) -> int:
    """The duration in whole microseconds."""
    return duration // _MICROSECOND


def instant_to_datetime(instant: Instant) -> datetime:
    """The instant as an aware datetime in UTC."""
    return _EPOCH + timedelta(microseconds=instant)
