"""Dead letters of a Redis store by what failed alike: counted here, since the server has no such index."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

from celery_guard.job.instant import Instant, instant_to_datetime
from celery_guard.job.letter import Handled, LetterGroup
from celery_guard.job.row import Job, StoredFailure

from .rows import text

__all__ = ["counted", "handled", "told"]

_WHY = {
    "missing": "there is no such job",
    "untold": "Celery has not been told of its end yet",
    "unreplayed": "it was neither replayed nor resolved",
}


@dataclass(slots=True)
class _Group:
    first: datetime
    last: datetime
    sample: str
    count: int = 0
    tenants: set[str] = field(default_factory=set)


def counted(letters: Iterable[Job]) -> list[LetterGroup]:
    """The groups, the largest first. What is kept grows with groups and tenants, not with letters."""
    found: dict[tuple[str, str | None], _Group] = {}
    for job in letters:
        at = job.finished or job.created
        group = found.setdefault((job.task, job.cause), _Group(at, at, job.id))
        group.count += 1
        group.first, group.last = min(group.first, at), max(group.last, at)
        group.sample = min(group.sample, job.id)
        if job.tenant is not None:
            group.tenants.add(job.tenant)
    made = [
        LetterGroup(task, cause, each.count, each.first, each.last, len(each.tenants), each.sample)
        for (task, cause), each in found.items()
    ]
    return sorted(made, key=lambda group: (-group.count, group.task, group.cause or ""))


def told(
    group: LetterGroup, note: bytes | None, replayed: bytes | None, failures: Sequence[StoredFailure]
) -> LetterGroup:
    """The group with what is known of its cause."""
    said: dict[str, Any] = {} if note is None else json.loads(note)
    return replace(
        group,
        type_name=failures[-1].type_name if failures else "",
        replayed=None if replayed is None else instant_to_datetime(Instant(int(replayed))),
        note=said.get("note", ""),
        noted_by=said.get("by", ""),
    )


def handled(id: str, answer: Sequence[bytes]) -> Handled:
    """What came of one letter."""
    word, *about = map(text, answer)
    if word == "done":
        return Handled(id, "done")
    return Handled(id, "skipped", _WHY.get(word) or f"it is {about[0]}, not dead")
