"""Instants, durations and strangers' texts, as a terminal shows them."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from datetime import datetime, timedelta, timezone
from enum import Enum
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from celery_guard.job.row import Job

__all__ = ["ago", "job_record", "one_line", "progress_of", "record", "safe", "span", "when"]

_UNITS = (("d", 86400), ("h", 3600), ("m", 60), ("s", 1))

#: Characters that turn the direction of what follows them: a terminal would show a text in another order.
_TURNS = frozenset(range(0x202A, 0x202F)) | frozenset(range(0x2066, 0x206A))


def span(duration: timedelta) -> str:
    """A duration in its two largest units: ``3m 12s``, ``2d 4h``; under ten seconds with a tenth."""
    seconds = abs(duration.total_seconds())
    if seconds < 9.95:
        return f"{seconds:.1f}s"
    left = round(seconds)
    parts: list[str] = []
    for unit, size in _UNITS:
        count, left = divmod(left, size)
        if count or parts:
            parts.append(f"{count}{unit}" if count else "")
    return " ".join(part for part in parts[:2] if part)


def ago(instant: datetime | None, now: datetime | None = None) -> str:
    """How long ago, or in how long; empty for None."""
    if instant is None:
        return ""
    away = (now or datetime.now(timezone.utc)) - instant
    return f"{span(away)} ago" if away >= timedelta(0) else f"in {span(away)}"


def when(instant: datetime | None, now: datetime | None = None) -> str:
    """An instant in the local zone, and how far away it is; empty for None."""
    if instant is None:
        return ""
    local = instant.astimezone()
    return f"{local:%Y-%m-%d %H:%M:%S %z} ({ago(instant, now)})"


def safe(text: str) -> str:
    """A text of a stranger's that cannot steer the terminal; line ends and tabs stay."""
    return "".join(char if char in "\n\t" or _harmless(char) else _escaped(char) for char in text)


def one_line(text: str) -> str:
    """The same on one line."""
    return safe(text).replace("\n", "\\n").replace("\t", "\\t")


def _harmless(char: str) -> bool:
    code = ord(char)
    return code >= 0x20 and not 0x7F <= code < 0xA0 and code not in _TURNS and not 0xD800 <= code < 0xE000


def _escaped(char: str) -> str:
    return char.encode("unicode_escape").decode("ascii")


def progress_of(job: Job) -> str:
    """How far an attempt of the job has said it is, and how long ago; empty where none did."""
    return "" if job.progress is None else f"{job.progress} ({ago(job.progress.at)})"


def job_record(job: Job) -> dict[str, Any]:
    """A job as JSON has it, without its failures."""
    values: dict[str, Any] = record(job, ("failures", "publications"))
    # a claim sets it to 0: it is no count of how often the job was published
    return {**values, "publications_since_claim": job.publications, "shown_state": job.shown_state}


def record(value: Any, leave_out: tuple[str, ...] = ()) -> Any:
    """A value as JSON has it: instants in ISO 8601 with their zone, durations in seconds."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {
            field.name: record(getattr(value, field.name))
            for field in dataclasses.fields(value)
            if field.name not in leave_out
        }
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, timedelta):
        return value.total_seconds()
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, Mapping):
        return {str(key): record(entry) for key, entry in value.items()}
    if isinstance(value, (list, tuple)):
        return [record(entry) for entry in value]
    return value
