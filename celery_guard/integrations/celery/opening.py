"""Whether a message can be opened: what Celery takes for granted about it, looked at before Celery does.

Celery's consumer reads a message's headers as they come, and a wrong type in one of them ends the whole worker, again and again, for the
message goes back to its queue. What is said here is what makes a message unfit; the worker puts such a message into quarantine
(:mod:`.worker`). Fields that nobody knows are left alone.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any

from celery.utils.time import maybe_iso8601

from celery_guard.job.text import clean

__all__ = ["named_task", "raw_body", "why_unfit"]

_LONGEST_ID = 255
_LARGEST_COUNT = 2**31 - 1
#: A year of seconds: no time limit is longer.
_LONGEST_LIMIT = 31_536_000

#: Levels of lists and mappings. Celery's pool fails somewhere under a thousand, and takes the worker with it.
_DEEPEST = 200

_Holds = Callable[[Any], bool]


def named_task(message: Any) -> object:
    """What the message says its task is, where it says so in a header; None where it does not."""
    headers = message.headers
    return headers.get("task") if isinstance(headers, Mapping) else None


def why_unfit(message: Any) -> str | None:
    """Why no worker can run this message, in words; None for one that is fit. Decodes its body, and raises what that raises."""
    if not isinstance(message.headers, Mapping):
        return "not a task message: its headers are no mapping"
    if not isinstance(message.properties, Mapping):
        return "not a task message: its properties are no mapping"
    payload = message.payload
    in_headers = "task" in message.headers
    if isinstance(payload, Mapping) and ("args" in payload or not in_headers):
        # Celery's older protocol has all in the body
        fields = {**payload, **message.headers} if in_headers else payload
        args, kwargs, embed = payload.get("args", ()), payload.get("kwargs", {}), payload
    elif isinstance(payload, (list, tuple)) and len(payload) == 3 and in_headers:
        fields = message.headers
        args, kwargs, embed = payload
    else:
        return f"not a task message: its body is a {type(payload).__name__}"
    if (_opens(message.body) > _DEEPEST and _is_deeper(payload)) or _is_deeper(message.headers):
        return f"it is nested more than {_DEEPEST} deep, which does not pass from a worker to its processes"
    return (
        _wrong("header", _FIELDS, fields)
        or _wrong("property", _PROPERTIES, message.properties)
        or _wrong("body", _BODY, {"args": args, "kwargs": kwargs, "embed": embed})
        or (_wrong("body", _EMBED, embed) if embed else None)
    )


def raw_body(body: Any) -> bytes:
    """The body as the bytes it was, or as near to them as it can be kept."""
    if isinstance(body, str):
        return body.encode("utf-8", "surrogatepass")
    return bytes(body) if isinstance(body, (bytes, bytearray, memoryview)) else repr(body).encode(errors="replace")


def _wrong(place: str, expected: Mapping[str, _Holds], found: Mapping[str, Any]) -> str | None:
    for name, holds in expected.items():
        if not holds(found.get(name)):
            return f"its {place} {name} is a wrong value of type {type(found.get(name)).__name__}"
    return None


def _opens(body: Any) -> int:
    """How often the body could go down a level, told without a walk through it; more than ever where it is no text."""
    if isinstance(body, str):
        return body.count("[") + body.count("{")
    return body.count(b"[") + body.count(b"{") if isinstance(body, bytes) else _DEEPEST + 1


def _is_deeper(value: Any) -> bool:
    level = [value]
    for _ in range(_DEEPEST):
        level = [
            item
            for found in level
            if isinstance(found, (Mapping, list, tuple))
            for item in (found.values() if isinstance(found, Mapping) else found)
            if isinstance(item, (Mapping, list, tuple))
        ]
        if not level:
            return False
    return True


def _is_id(value: Any) -> bool:
    return isinstance(value, str) and 0 < len(value) <= _LONGEST_ID and clean(value) == value


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= _LARGEST_COUNT


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def _is_instant(value: Any) -> bool:
    """As Celery reads it. What it makes of a year 1 or 9999 in another zone would be no time at all."""
    try:
        read = maybe_iso8601(value)
        return isinstance(read, datetime) and 1970 <= read.year < 9000
    except (AttributeError, ValueError, TypeError, OverflowError):
        return False


def _is_limits(value: Any) -> bool:
    return isinstance(value, (list, tuple)) and len(value) == 2 and all(map(_or_none(_is_seconds), value))


def _is_seconds(value: Any) -> bool:
    number = isinstance(value, (int, float)) and not isinstance(value, bool)
    return number and math.isfinite(value) and 0 <= value <= _LONGEST_LIMIT


def _is_mapping(value: Any) -> bool:
    return isinstance(value, Mapping) and all(isinstance(name, str) for name in value)


def _is_signatures(value: Any) -> bool:
    return isinstance(value, (list, tuple)) and all(map(_is_signature, value))


def _is_signature(value: Any) -> bool:
    return isinstance(value, Mapping) and isinstance(value.get("task"), str)


def _or_none(holds: _Holds) -> _Holds:
    return lambda value: value is None or holds(value)


_FIELDS: dict[str, _Holds] = {
    "task": _is_id,
    "id": _is_id,
    "root_id": _or_none(_is_id),
    "parent_id": _or_none(_is_id),
    "group": _or_none(_is_id),
    "group_index": _or_none(_is_count),
    "retries": _or_none(_is_count),
    "replaced_task_nesting": _or_none(_is_count),
    "eta": _or_none(_is_instant),
    "expires": _or_none(_is_instant),
    "timelimit": _or_none(_is_limits),
    "shadow": _or_none(_is_text),
    "origin": _or_none(_is_text),
    "argsrepr": _or_none(_is_text),
    "kwargsrepr": _or_none(_is_text),
    "ignore_result": _or_none(lambda value: isinstance(value, bool)),
    "stamped_headers": _or_none(lambda value: isinstance(value, (list, tuple)) and all(map(_is_text, value))),
    "stamps": _or_none(_is_mapping),
}

_PROPERTIES: dict[str, _Holds] = {
    "reply_to": _or_none(_is_text),
    "correlation_id": _or_none(_is_text),
    "priority": _or_none(_is_count),
}

_BODY: dict[str, _Holds] = {
    "args": lambda value: isinstance(value, (list, tuple)),
    "kwargs": _is_mapping,
    "embed": _or_none(lambda value: isinstance(value, Mapping)),
}

_EMBED: dict[str, _Holds] = {
    "callbacks": _or_none(_is_signatures),
    "errbacks": _or_none(_is_signatures),
    "chain": _or_none(_is_signatures),
    "chord": _or_none(_is_signature),
}
