"""The guard's own header on a message: who the job is, for the worker that receives it.

What is in it never changes from attempt to attempt, so a message does not grow. The store's row is the truth; the envelope is what
is left of it where there is no row (a message that is adopted, a broker that was restored from a backup).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from .instant import Instant

__all__ = ["ENCRYPTED", "HEADER", "PLAIN", "VERSION", "Envelope", "Unreadable", "open_header"]

#: The message header that carries the envelope.
HEADER = "guard"

#: Raised when an older worker could misread what a newer one wrote. New fields alone do not raise it.
VERSION = 2
#: What a message is written with whose arguments every version can read, and one whose arguments are encrypted.
PLAIN, ENCRYPTED = 1, 2

_LONGEST_TEXT = 512
_LARGEST_NUMBER = 2**63 - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Envelope:
    """Who a job is."""

    id: str
    key: str | None = None
    fingerprint: str | None = None
    #: Which message of the job this is: raised where a retry or a replacement changes the call.
    generation: int = 0
    #: When it was enqueued, in seconds since the epoch by the publisher's clock. For people, and to tell a message that is days older than any row.
    created: float | None = None
    #: By the store's clock.
    deadline: Instant | None = None
    tenant: str | None = None
    correlation_id: str | None = None
    #: The version of each argument that is a payload, by the argument's name.
    payloads: Mapping[str, int] = field(default_factory=dict)
    version: int = PLAIN

    def to_header(self) -> dict[str, Any]:
        """The header's value: plain JSON, without what is not set."""
        fields = {
            "version": self.version,
            "id": self.id,
            "key": self.key,
            "fingerprint": self.fingerprint,
            "generation": self.generation,
            "created": self.created,
            "deadline": self.deadline,
            "tenant": self.tenant,
            "correlation_id": self.correlation_id,
        }
        if self.payloads:
            fields["payloads"] = dict(self.payloads)
        return {name: value for name, value in fields.items() if value is not None}


@dataclass(frozen=True, slots=True)
class Unreadable:
    """The header is missing, no envelope, or a newer one than this version understands."""

    reason: str
    #: The version it says it has, where it says one.
    version: int | None = None

    @property
    def newer(self) -> bool:
        """A worker of a newer version of the guard could read it."""
        return self.version is not None and self.version > VERSION


def open_header(value: object) -> Envelope | Unreadable:
    """Read a header's value; fields that this version does not know are left alone. Never raises."""
    if value is None:
        return Unreadable("there is no guard header")
    if not isinstance(value, Mapping):
        return Unreadable(f"the guard header is a value of type {type(value).__name__}, not a mapping")
    version: Any = value.get("version")
    if not _is_number(version) or version < 1:
        return Unreadable("the guard header has no version")
    if version > VERSION:
        return Unreadable(f"the guard header has version {version}; this worker reads up to {VERSION}", version)
    known: dict[str, Any] = {"id": None}
    known.update((name, found) for name, found in value.items() if name in _FIELDS and found is not None)
    for name, found in known.items():
        if not _FIELDS[name](found):
            return Unreadable(f"the guard header's {name} is a wrong value of type {type(found).__name__}", version)
    return Envelope(version=version, **known)


def _is_number(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and abs(value) <= _LARGEST_NUMBER


def _is_text(value: Any) -> bool:
    return isinstance(value, str) and 0 < len(value) <= _LONGEST_TEXT


def _is_versions(value: Any) -> bool:
    return isinstance(value, Mapping) and all(_is_text(name) and _is_number(v) and v > 0 for name, v in value.items())


def _is_time(value: Any) -> bool:
    return _is_number(value) or (isinstance(value, float) and math.isfinite(value))


#: What each field has to be, where it is set; the id is always.
_FIELDS: dict[str, Callable[[Any], bool]] = {
    "id": _is_text,
    "key": _is_text,
    "fingerprint": _is_text,
    "generation": lambda value: _is_number(value) and value >= 0,
    "created": _is_time,
    "deadline": _is_number,
    "tenant": _is_text,
    "correlation_id": _is_text,
    "payloads": _is_versions,
}
