"""The slot of a schedule, on its way from beat to the door: what is sent for it has the slot's id, and so exists once."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from celery_guard.job.verdict import Conflict, Duplicate, Enqueued

if TYPE_CHECKING:
    from celery_guard.job.slot import Slot

__all__ = ["SLOT_HEADER", "Due", "answer_for", "due_for", "is_due", "scheduled", "with_slot"]

logger = logging.getLogger("celery_guard.enqueue")

#: The message header that tells a body which slot of its schedule it is: an instant in ISO 8601.
SLOT_HEADER = "guard_slot"


@dataclass(frozen=True, slots=True)
class Due:
    """What a schedule sends right now."""

    task: str
    #: How to work out the slot; None: the schedule does not say its slots.
    slot: Callable[[], Slot | None]
    #: The schedule's name, as far as rows keep it; None where it has one run only.
    schedule: str | None


_due: ContextVar[Due | None] = ContextVar("celery_guard_due", default=None)


@contextmanager
def scheduled(due: Due) -> Iterator[None]:
    """Send inside the block what a schedule is for: its task, once, is sent for the slot."""
    token = _due.set(due)
    try:
        yield
    finally:
        _due.reset(token)


def due_for(task: str) -> Due | None:
    """What a send is for. What else is sent meanwhile, by an overridden ``apply_async``, is for no schedule."""
    due = _due.get()
    if due is None or due.task != task:
        return None
    _due.set(None)
    return due


def is_due() -> bool:
    """Whether a schedule sends here, and now."""
    return _due.get() is not None


def with_slot(slot: Slot, options: dict[str, Any]) -> dict[str, Any]:
    """The options of a send, with the header that names its slot."""
    return {**options, "headers": {**(options.get("headers") or {}), SLOT_HEADER: slot.instant.isoformat()}}


def answer_for(slot: Slot, answer: Enqueued) -> Enqueued:
    """A slot has one job, whatever arguments a second scheduler has worked out for it."""
    if not (isinstance(answer, (Duplicate, Conflict)) and answer.holder == slot.id):
        return answer
    logger.info(
        "schedule %s, slot %s: enqueued before, as job %s (%s)",
        slot.schedule, slot.instant.isoformat(), slot.id, answer.state.value,
    )  # fmt: skip
    return Duplicate(slot.id, slot.id, answer.state)
