"""What is said of a job that was not accepted."""

from __future__ import annotations

from celery_guard.errors import KeyBusy, KeyConflict

from .row import NewJob
from .verdict import Accepted, Buffered, Busy, Conflict, Duplicate, Enqueued

__all__ = ["explain_refusal"]


def explain_refusal(job: NewJob, answer: Enqueued) -> KeyConflict | KeyBusy | None:
    """The error for a single job that was not accepted; None where it was, or is a duplicate."""
    match answer:
        case Accepted() | Duplicate() | Buffered():
            return None
        case Conflict(holder=holder, state=state):
            what = "key" if job.key is not None else "id"
            return KeyConflict(
                f"{job.task}: this {what} was accepted before with other arguments, as job {holder} ({state.value}). "
                "Nothing was enqueued. Use another key for another call, or name the arguments that must match in Contract.match.",
                holder,
            )
        case Busy():
            return KeyBusy(
                f"{job.task}: another open transaction is enqueuing the same key. Nothing was enqueued. "
                "Try again when that transaction has ended."
            )
