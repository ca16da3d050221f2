"""How far a running attempt says it is: what its body gives, what the row keeps, what people read.

The row has one text, and it is always of the attempt whose fence the row has: a claim and a replay clear it, and only a renewal of that
attempt's lease, or its end, writes it. When it was said is kept as the time since the start of that attempt, so no clock but the store's counts.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from .text import clean

__all__ = ["LONGEST_NOTE", "MOST", "Progress", "progress_from", "progress_text"]

#: How many characters a note may have.
LONGEST_NOTE = 200
#: Up to here every reader of JSON, a browser too, tells one whole number from the next.
MOST = 2**53


@dataclass(frozen=True, slots=True)
class Progress:
    """How far an attempt has said it is.

    >>> str(Progress(412, 1000, "page 7", at=datetime(2026, 1, 1)))
    '412 of 1000 (41 %): page 7'
    """

    #: In the body's own unit: rows, bytes, steps. An int stays one, also in the JSON of a web framework that goes by these types.
    done: int | float
    #: Of how many; None where that is not known.
    total: int | float | None
    note: str
    #: When it was said, by the store's clock, aware, in UTC.
    at: datetime

    @property
    def fraction(self) -> float | None:
        """From 0 to 1; None where there is no total, or it is 0."""
        return self.done / self.total if self.total else None

    def __str__(self) -> str:
        of = "" if self.total is None else f" of {_shown(self.total)}"
        # rounded down: what is at 100 % is done
        part = f" ({math.floor(100 * self.done / self.total)} %)" if self.total else ""
        return f"{_shown(self.done)}{of}{part}" + (f": {self.note}" if self.note else "")


def progress_text(done: float, total: float | None, note: str, after: timedelta) -> str:
    """What the row keeps: JSON in ASCII, of bounded length. ``after`` is the time since the start of the attempt.

    Raises:
        TypeError: a number or the note is of another type.
        ValueError: a number is negative, not finite, over :data:`MOST`, ``done`` over ``total``, or the note is too long.
    """
    _check(done, total, note)
    said: dict[str, Any] = {"done": done, "after": round(after.total_seconds(), 3)}
    if total is not None:
        said["total"] = total
    if note:
        said["note"] = clean(note)
    return json.dumps(said)


def progress_from(text: str | None, started: datetime | None) -> Progress | None:
    """What a row keeps, of an attempt that started then. None where nothing was said, or somebody else has written there."""
    if text is None or started is None:
        return None
    try:
        said = json.loads(text)
        done, total, note = said["done"], said.get("total"), said.get("note", "")
        _check(done, total, note)
        return Progress(done, total, note, started + timedelta(seconds=said["after"]))
    except (ValueError, TypeError, LookupError, AttributeError, OverflowError):
        return None


def _check(done: Any, total: Any, note: Any) -> None:
    _check_number("done", done)
    if total is not None:
        _check_number("total", total)
        if done > total:
            raise ValueError(
                f"progress: {done} of {total} are done. To repair: give the total that holds by now, or none where it is not known."
            )
    if not isinstance(note, str):
        raise TypeError(f"progress: the note is a {type(note).__name__}. To repair: give a text.")
    if len(note) > LONGEST_NOTE:
        raise ValueError(
            f"progress: the note has {len(note)} characters, and may have {LONGEST_NOTE}. To repair: shorten it, or log it."
        )


def _check_number(name: str, value: Any) -> None:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise TypeError(f"progress: {name} is a {type(value).__name__}. To repair: give an int or a float.")
    # also false of what is not a number
    if not 0 <= value <= MOST:
        found = value if isinstance(value, float) or abs(value) <= MOST else "an integer beyond 2**53"
        raise ValueError(f"progress: {name} is {found}. To repair: give a number from 0 to 2**53.")


def _shown(number: float) -> str:
    return str(number) if isinstance(number, int) else f"{number:.15g}"
