"""Whether a payload comes back as it went, and how large it is on its way.

The serializer is Celery's, and the user's choice. The guard does not trust it: it has the encoded message decoded again where
the job is accepted, and compares. A value comes back equal and of the same type, or it is refused, with its place. Two
exceptions, both of which hold for every Celery task:

* a tuple comes back as a list;
* a Celery signature comes back as a plain mapping.

NaN and the infinities are refused even where the serializer keeps them: no JSON column takes them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from typing import Any

from .canonical import DEEPEST
from .path import spell

__all__ = ["Difference", "first_difference", "first_unencodable", "wire_size"]

_PLAIN = frozenset({str, int, bool, type(None)})


@dataclass(frozen=True, slots=True)
class Difference:
    """What does not come back as it went."""

    #: ``kwargs['order']['total']``
    path: str
    #: What is there, by type; never the value, which may be nobody's business.
    found: str
    #: A clause that stands on its own: "a value of type date comes back as a value of type str".
    why: str

    def __str__(self) -> str:
        return f"{self.path}: {self.why}"


#: A place: the place around it and the last step; None at the root.
_Place = Any


def first_difference(sent: Any, came_back: Any, root: str = "the value") -> Difference | None:
    """The first place, in reading order, where the two differ; None where they do not.

    ``root`` is the name of the whole: ``args``. Values nested deeper than 200 levels, or in a circle, are a difference.
    """
    waiting: list[tuple[Any, Any, _Place, int]] = [] if _kept(sent, came_back) else [(sent, came_back, None, 0)]
    while waiting:
        one, other, place, depth = waiting.pop()
        inner: Iterable[tuple[Any, Any, Any]] = ()
        if isinstance(one, (dict, list, tuple)) and depth >= DEEPEST:
            return _difference(root, place, one, f"is nested deeper than {DEEPEST} levels")
        if isinstance(one, dict):
            found = _mapping(one, other, root, place)
            inner = () if found else ((key, one[key], other[key]) for key in one)
        elif isinstance(one, (list, tuple)):
            found = _sequence(one, other, root, place)
            inner = () if found else zip(range(len(one)), one, other, strict=True)
        else:
            found = _single(one, other, root, place)
        if found:
            return found
        waiting.extend([(a, b, (place, step), depth + 1) for step, a, b in inner if not _kept(a, b)][::-1])
    return None


def first_unencodable(value: Any, encodes: Callable[[object], bool], root: str = "the value") -> str | None:
    """The path of the smallest element that ``encodes`` refuses, first in reading order; None where it takes the whole.

    ``encodes`` is asked about elements on their own, so it is only for saying what is wrong once something is.
    """
    if encodes(value):
        return None
    steps: list[Any] = []
    while len(steps) < DEEPEST:
        inner = next(((step, item) for step, item in _elements(value) if not encodes(item)), None)
        if inner is None:
            refused = [key for key in value if not encodes({key: None})] if isinstance(value, dict) else []
            return spell(root, [*steps, *refused[:1]])
        step, value = inner
        steps.append(step)
    return spell(root, steps)


def wire_size(body: bytes, headers_json: str, delivery_json: str) -> int:
    """Bytes of a message as a virtual transport (Redis, SQS) puts it on the wire: the body grows by base64."""
    grown = (len(body) + 2) // 3 * 4
    return (
        grown + len(headers_json.encode("utf-8", "surrogatepass")) + len(delivery_json.encode("utf-8", "surrogatepass"))
    )


def _kept(one: Any, other: Any) -> bool:
    """The answer for nearly every value, without a look at anything else."""
    kind = type(one)
    return kind is type(other) and kind in _PLAIN and bool(one == other)


def _mapping(one: dict[Any, Any], other: Any, root: str, place: _Place) -> Difference | None:
    if not isinstance(other, dict) or not (type(one) is type(other) or _is_signature(one)):
        return _difference(root, place, one, f"comes back as {_kind(other)}")
    for key in one:
        if key not in other:
            return _difference(root, (place, key), key, "does not come back; keys have to be texts", key=True)
        if type(key) is not str and not any(type(back) is type(key) for back in other if back == key):
            return _difference(root, (place, key), key, "comes back as another type; keys have to be texts", key=True)
    if len(other) > len(one):
        return _difference(root, place, one, "comes back with more keys")
    return None


def _sequence(one: list[Any] | tuple[Any, ...], other: Any, root: str, place: _Place) -> Difference | None:
    if type(one) is not type(other) and not (type(one) is tuple and type(other) is list):
        return _difference(root, place, one, f"comes back as {_kind(other)}")
    if len(one) != len(other):
        return _difference(root, place, one, f"comes back with {len(other)} elements instead of {len(one)}")
    return None


def _single(one: Any, other: Any, root: str, place: _Place) -> Difference | None:
    if (isinstance(one, float) and not math.isfinite(one)) or (isinstance(one, Decimal) and not one.is_finite()):
        return _difference(root, place, one, "is no finite number, which JSON does not have")
    if type(one) is not type(other):
        return _difference(root, place, one, f"comes back as {_kind(other)}")
    if not _equal(one, other):
        return _difference(root, place, one, "comes back as another value")
    return None


def _equal(one: Any, other: Any) -> bool:
    if isinstance(one, datetime):
        # Not `==`: between two zones it is never true in the hour that a clock change repeats.
        return (one.replace(tzinfo=None), one.utcoffset()) == (other.replace(tzinfo=None), other.utcoffset())
    return bool(one == other)


def _is_signature(value: dict[Any, Any]) -> bool:
    """A Celery signature, told without importing Celery."""
    return "subtask_type" in value or any(kind.__name__ == "Signature" for kind in type(value).__mro__)


def _elements(value: Any) -> Iterator[tuple[Any, Any]]:
    if isinstance(value, dict):
        yield from value.items()
    elif isinstance(value, (list, tuple)):
        yield from enumerate(value)


def _difference(root: str, place: _Place, value: Any, why: str, key: bool = False) -> Difference:
    steps = []
    while place is not None:
        place, step = place
        steps.append(step)
    found = _kind(value)
    return Difference(spell(root, steps[::-1]), found, f"the key, {found}, {why}" if key else f"{found} {why}")


def _kind(value: Any) -> str:
    return "None" if value is None else f"a value of type {type(value).__qualname__}"
