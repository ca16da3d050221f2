"""Numbers and durations as people write them in a contract. Nonsense is refused where it is written.

Every function returns the value in its one form or raises :class:`~celery_guard.errors.ContractError`; ``name`` is what
the person wrote it as (``Retry.base``).
"""

from __future__ import annotations

import math
from datetime import timedelta
from typing import Any, NoReturn

from celery_guard.errors import ContractError

__all__ = ["LONGEST", "duration", "refuse", "seconds", "shown", "span", "whole"]

#: Nothing that a contract bounds takes longer; what is written above it is a slip (milliseconds, a time stamp).
LONGEST = timedelta(days=3650)


def seconds(name: str, value: Any) -> float:
    """Seconds as a number, or a timedelta: over 0, finite, at most :data:`LONGEST`."""
    if isinstance(value, timedelta):
        return span(name, value).total_seconds()
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        refuse(name, value, "a number of seconds", "write seconds as a plain number, such as 2 or 0.5")
    if math.isnan(value) or not 0 < value <= LONGEST.total_seconds():
        refuse(name, value, f"seconds over 0 and at most {LONGEST.days} days", "correct the number")
    return float(value)


def duration(name: str, value: Any) -> timedelta:
    """Seconds as a number, or a timedelta: over 0, at most :data:`LONGEST`."""
    return span(name, value) if isinstance(value, timedelta) else timedelta(seconds=seconds(name, value))


def span(name: str, value: Any) -> timedelta:
    """A timedelta over 0, at most :data:`LONGEST`; a bare number is refused, for its unit cannot be seen."""
    if not isinstance(value, timedelta):
        refuse(name, value, "a datetime.timedelta", "write the unit, such as timedelta(hours=2)")
    if not timedelta(0) < value <= LONGEST:
        refuse(name, value, f"a timedelta over 0 and at most {LONGEST.days} days", "correct it, or leave it out")
    return value


def whole(name: str, value: Any, least: int, why: str) -> int:
    """A whole number, ``least`` or more."""
    if isinstance(value, bool) or not isinstance(value, int):
        refuse(name, value, f"a whole number, {least} or more", why)
    if value < least:
        refuse(name, value, f"{least} or more", why)
    return value


def refuse(name: str, found: Any, expected: str, advice: str) -> NoReturn:
    """Raise: what was found, what was expected, what to do."""
    raise ContractError(f"{name}: found {shown(found)}, expected {expected}. To repair: {advice}.")


def shown(value: Any) -> str:
    """A declared value as a message shows it, in bounded length."""
    if isinstance(value, type):
        return f"the class {value.__qualname__}"
    if isinstance(value, timedelta):
        return str(value)
    if isinstance(value, (bool, int, float, str, type(None))):
        text = repr(value)
        return text if len(text) <= 80 else f"{text[:77]}..."
    return f"a value of type {type(value).__qualname__}"
