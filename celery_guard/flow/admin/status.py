"""How a job stands, in the five words that an application tells its own users. What operators see is in :mod:`.jobs`."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from celery_guard.job.progress import Progress
from celery_guard.job.row import Job
from celery_guard.job.state import Kind, State

__all__ = ["JobStatus", "status_of"]

_WORDS = {
    State.PENDING: "accepted",
    State.SENT: "accepted",
    State.RUNNING: "running",
    # whether it took effect is being looked into; it is neither done nor failed
    State.UNKNOWN: "running",
    State.SUCCEEDED: "done",
    State.CANCELLED: "cancelled",
    State.DEAD: "failed",
    State.RESOLVED: "failed",
    State.DROPPED: "failed",
}


@dataclass(frozen=True, slots=True)
class JobStatus:
    """How a job stands, fit for the answer to a poll: no argument, no message of an exception, no name of a machine.

    >>> JobStatus("7", "running", None, accepted=datetime(2026, 1, 1)).is_over
    False
    """

    id: str
    #: ``accepted``, ``running``, ``done``, ``failed`` or ``cancelled``. A job that is to be tried again is ``accepted``.
    status: str
    #: How far the attempt that runs has said it is, or the last one that ran; None where it has said nothing.
    progress: Progress | None
    #: Times are aware datetimes in UTC.
    accepted: datetime
    started: datetime | None = None
    finished: datetime | None = None

    @property
    def is_over(self) -> bool:
        """Whether polling again is needless. A failed job may still be sent again by an operator."""
        return self.status in ("done", "failed", "cancelled")


def status_of(job: Job) -> JobStatus:
    """How a job stands. A message of a task without a guard stays ``accepted``: nobody hears how it ends."""
    word = "accepted" if job.kind is Kind.CARRIED and job.state is State.SUCCEEDED else _WORDS[job.state]
    finished = job.finished if word in ("done", "failed", "cancelled") else None
    return JobStatus(job.id, word, job.progress, job.created, job.started, finished)
