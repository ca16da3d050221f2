"""One text for one value: what key and fingerprint are hashed from.

Two values have the same text if, and only if, they are equal and of the same kind. So ``1``, ``1.0``, ``True`` and ``"1"``
are four values; the order of a mapping and the difference between tuple and list, which a message does not keep, count for
nothing; ``Decimal("1.10")`` is ``Decimal("1.1")``; two aware datetimes are one value if they are the same instant.

Texts are compared as Python compares them: ``"é"`` as one code point and as two are two values. Nothing is
normalized, for what a person typed twice in two ways is not for a library to judge.

The text is ASCII JSON. What JSON has (null, booleans, numbers, texts, lists) is written as it is; everything else,
mappings included, as an object with the kind as its only name, so that no value can look like another.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from typing import Any, NoReturn
from uuid import UUID

from celery_guard.errors import PayloadError

from .path import spell

__all__ = ["DEEPEST", "canonical"]

#: Levels of nesting; deeper values are refused, cycles among them.
DEEPEST = 200

_EPOCH = datetime(1970, 1, 1)  # noqa: DTZ001 - subtracted from wall-clock times
_MICROSECOND = timedelta(microseconds=1)
#: Python refuses to print longer whole numbers in decimal.
_PLAIN_BITS = 1024


def canonical(value: Any, root: str = "the value") -> str:
    """The text of ``value``; ``root`` is its name, for the message.

    Raises:
        PayloadError: the value, or something in it, has no such text; names its path.
    """
    try:
        return _dumped(_tagged(value, 0))
    except _NoText as found:
        path = spell(root, found.steps[::-1])
        why = found.why
    raise PayloadError(
        f"{path} {why}, so two calls with it can be neither told apart nor found equal. "
        "Pass a text, a number, a date, a UUID, or lists and mappings of them.",
        path,
    )


class _NoText(Exception):
    """Something in the value has no text; ``steps`` is its place, innermost first."""

    def __init__(self, why: str) -> None:
        super().__init__(why)
        self.why = why
        self.steps: list[Any] = []


def _dumped(tagged: Any) -> str:
    return json.dumps(tagged, ensure_ascii=True, allow_nan=False, separators=(",", ":"))


def _tagged(value: Any, depth: int) -> Any:
    write = _EXACT.get(type(value))
    if write is not None:
        return write(value, depth)
    for kind, write in _WRITERS:
        if isinstance(value, kind):
            return write(value, depth)
    return _no_text(f"is of type {type(value).__qualname__}")


def _no_text(why: str) -> NoReturn:
    raise _NoText(why)


def _same(value: Any, depth: int) -> Any:
    return value


def _text(value: str, depth: int) -> Any:
    if value.isascii():
        return str.__str__(value)
    try:
        value.encode("utf-8")
    except UnicodeEncodeError:
        # Two lone surrogates and the character that they would spell together are not the same text.
        return {"text": value.encode("utf-8", "surrogatepass").hex()}
    return str.__str__(value)


def _whole(value: int, depth: int) -> Any:
    number = int(value)
    return number if number.bit_length() <= _PLAIN_BITS else {"int": hex(number)}


def _float(value: float, depth: int) -> Any:
    if not math.isfinite(value):
        _no_text("is no finite number")
    return float(value) + 0.0  # -0.0 is 0.0


def _mapping(value: dict[Any, Any], depth: int) -> Any:
    _refuse_depth(depth)
    pairs = []
    for key, item in value.items():
        try:
            pairs.append((_dumped(_tagged(key, depth + 1)), _tagged(item, depth + 1)))
        except _NoText as found:
            found.steps.append(key)
            raise
    pairs.sort(key=_first)
    return {"map": pairs}


def _first(pair: tuple[str, Any]) -> str:
    return pair[0]


def _sequence(value: list[Any] | tuple[Any, ...], depth: int) -> Any:
    _refuse_depth(depth)
    written: list[Any] = []
    for item in value:
        try:
            written.append(_tagged(item, depth + 1))
        except _NoText as found:
            found.steps.append(len(written))
            raise
    return written


def _refuse_depth(depth: int) -> None:
    if depth >= DEEPEST:
        _no_text(f"is nested deeper than {DEEPEST} levels")


def _decimal(value: Decimal, depth: int) -> Any:
    sign, digits, exponent = value.as_tuple()
    if isinstance(exponent, str):
        _no_text("is no finite number")
    kept = "".join(map(str, digits)).lstrip("0")
    short = kept.rstrip("0")
    if not short:
        return {"decimal": "0"}
    return {"decimal": f"{'-' if sign else ''}{short}e{exponent + len(kept) - len(short)}"}


def _datetime(value: datetime, depth: int) -> Any:
    offset = value.utcoffset()
    if offset is None:
        return {"datetime": datetime.isoformat(value)}
    # As a number: astimezone() overflows at either end of the calendar.
    return {"instant": (value.replace(tzinfo=None) - _EPOCH - offset) // _MICROSECOND}


def _enum(value: Enum, depth: int) -> Any:
    return _no_text(f"is the enum member {type(value).__qualname__}")


#: In this order: an enum may be a text or a number too, and a datetime is a date.
_WRITERS: tuple[tuple[type, Callable[[Any, int], Any]], ...] = (
    (Enum, _enum),
    (str, _text),
    (int, _whole),
    (float, _float),
    (dict, _mapping),
    (list, _sequence),
    (tuple, _sequence),
    (UUID, lambda value, depth: {"uuid": value.hex}),
    (Decimal, _decimal),
    (datetime, _datetime),
    (date, lambda value, depth: {"date": date.isoformat(value)}),
    (time, lambda value, depth: {"time": time.isoformat(value)}),
    (bytes, lambda value, depth: {"bytes": value.hex()}),
)

#: The way that nearly every value takes.
_EXACT: dict[type, Callable[[Any, int], Any]] = {**dict(_WRITERS), type(None): _same, bool: _same}
