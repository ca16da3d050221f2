"""The slot of a schedule, on its way from beat to the door: what is sent for it has the slot's id, and so exists once."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

from celery_guard.job.verdict import Conflict, Duplicate, Enqueued

if TYPE_CHECKING:
    from celery_guard.job.slot import Slot

__all__ = ["SLOT_HEADER", "answer_for", "scheduled", "slot_for", "with_slot"]

logger = logging.getLogger("celery_guard.enqueue")

#: The message header that tells a body which slot of its schedule it is: an instant in ISO 8601.
SLOT_HEADER = "guard_slot"

#: What a schedule sends right now: the task, and how to work out the slot.
_due: ContextVar[tuple[str, Callable[[], Slot | None]] | None] = ContextVar("celery_guard_due", default=None)


@contextmanager
def scheduled(task: str, slot: Callable[[], Slot | None]) -> Iterator[None]:
    """Send inside the block what a schedule is for: the task of this name, once, is sent for the slot."""
    token = _due.set((task, slot))
    try:
        yield
    finally:
        _due.reset(token)


def slot_for(task: str) -> Slot | None:
    """The slot that a send is for. What else is sent meanwhile, by an overridden ``apply_async``, has none."""
    due = _due.get()
    if due is None or due[0] != task:
        return None
    _due.set(None)
    return due[1]()


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
