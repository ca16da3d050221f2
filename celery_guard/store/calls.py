"""What every store does with a call before its server hears of it."""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from datetime import timedelta
from itertools import islice
from typing import TypeVar

from celery_guard.job.audit import NewAudit, Outcome
from celery_guard.job.row import Attempt, NewJob
from celery_guard.job.settlement import Settlement
from celery_guard.job.state import State

__all__ = [
    "BATCH",
    "BATCH_BYTES",
    "FOLLOWER_PAUSE",
    "SETTLE_PATIENCE",
    "as_seen",
    "batches",
    "batches_of_jobs",
    "expired",
    "owner_of_this_claim",
]

T = TypeVar("T")

#: How many rows one statement, or one script, is about, so that none keeps the server from others for long.
BATCH = 500

#: How many bytes of messages one of them writes.
BATCH_BYTES = 4 * 1024 * 1024

#: An attempt's end is waited for so many times longer than anything else, through the restart of a server: its body would do its work again.
SETTLE_PATIENCE = 4

#: How long a follower waits before a relay looks at its holder again; the holder's end brings it back at once.
FOLLOWER_PAUSE = timedelta(seconds=60)

#: What the row has room for beside the mark.
_LONGEST_OWNER = 240


def batches_of_jobs(jobs: Sequence[NewJob]) -> Iterator[Sequence[NewJob]]:
    """The jobs in their order, at most :data:`BATCH` at a time, and :data:`BATCH_BYTES` of messages, or one that is larger."""
    begin = size = 0
    for place, new in enumerate(jobs):
        size += len(new.payload.body)
        if place > begin and (place - begin == BATCH or size > BATCH_BYTES):
            yield jobs[begin:place]
            begin, size = place, len(new.payload.body)
    if begin < len(jobs):
        yield jobs[begin:]


def batches(items: Iterable[T]) -> Iterable[list[T]]:
    """The items, at most :data:`BATCH` at a time."""
    iterator = iter(items)
    while batch := list(islice(iterator, BATCH)):
        yield batch


def owner_of_this_claim(owner: str) -> str:
    """The owner that one call of claim writes: it tells its own grant from everybody else's when it has to ask again."""
    return f"{owner[:_LONGEST_OWNER]}:{secrets.token_hex(6)}"


def expired(task: str, tenant: str | None, number: int) -> NewAudit:
    """What the audit keeps of dead letters that retention has deleted."""
    return NewAudit(
        token=secrets.token_hex(12), entry=secrets.token_hex(12), outcome=Outcome.DONE, actor="retention", role="", origin="sweep",
        action="dlq.expire", target=f"dead letters task={task}", tenant=tenant, reason="their time was over", detail=f"{number} deleted",
    )  # fmt: skip


def as_seen(attempt: Attempt, settlement: Settlement) -> Settlement:
    """A settlement of what the sweep saw. Whoever was never claimed has no attempt to be given back."""
    charged = settlement.charged or attempt.state is not State.RUNNING
    return replace(settlement, id=attempt.id, fence=attempt.fence, owner=attempt.owner, charged=charged)
