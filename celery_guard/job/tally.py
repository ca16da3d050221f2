"""What a store has counted, and what it holds right now: the facts that metrics are made of.

Counts only ever rise. They are of the store, not of a process: a move is counted by the row that it has left behind, so a process that
is killed right after it has reported as much as any other. What leaves no trace on a row (a duplicate that was turned away, a lease that was
renewed late) is written beside the rows, in the transaction of what is counted where there is one.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from enum import Enum

__all__ = ["BOUNDS", "INSTANTS", "Count", "Counted", "Standing"]


class Count(str, Enum):
    """What is counted."""

    ENQUEUED = "enqueued"
    #: Messages of jobs that a broker has taken. Those that only bring an outcome back to Celery are not in it.
    PUBLISHED = "published"
    #: Attempts that began.
    CLAIMED = "claimed"
    #: Attempts that failed, by class; also those that crashed.
    FAILED = "failed"
    #: Attempts whose lease lapsed.
    CRASHED = "crashed"
    #: Further runs, by the class of the failure that they answer; none where a body has asked for one without an error.
    RETRIED = "retried"
    #: Messages that a broker, or the codec, would not have.
    REFUSED = "refused"
    #: Jobs that came to an end, by state, reason and class of failure. One that is replayed comes to another.
    ENDED = "ended"
    REPLAYED = "replayed"
    #: Enqueued under a key (or id) that was taken, with the same payload.
    DUPLICATE = "duplicate"
    #: The same, with another payload.
    CONFLICT = "conflict"
    #: Deliveries of a job that ran elsewhere, was not due, or had ended.
    IGNORED = "ignored"
    #: Attempts that came back when they were not the owner any more.
    FENCED = "fenced"
    RENEWED_LATE = "renewed_late"
    #: How long the last attempt of a job that ended took: how many, microseconds, and how many were within each bound.
    RUN = "run"
    RUN_TIME = "run_time"
    RUN_WITHIN = "run_within"
    #: From the wish to cancel a job to its end.
    CANCEL = "cancel"
    CANCEL_TIME = "cancel_time"
    CANCEL_WITHIN = "cancel_within"
    #: When a job of the task last succeeded.
    LAST_SUCCESS = "last_success"
    #: The same of the jobs that a schedule has sent. Its name stands where others have the task.
    SCHEDULE_SUCCESS = "schedule_success"

    __str__ = str.__str__

    @classmethod
    def known(cls, word: str) -> Count | None:
        """What a store calls so; None for what a newer release counts, which this one leaves as it is."""
        return cls(word) if word in cls._value2member_map_ else None


#: What is no total but the instant at which something last happened, in microseconds since the epoch.
INSTANTS = (Count.LAST_SUCCESS, Count.SCHEDULE_SUCCESS)

#: The bounds of the two histograms, in seconds.
BOUNDS = (0.05, 0.25, 1.0, 5.0, 30.0, 120.0, 600.0, 3600.0)


@dataclass(frozen=True, slots=True)
class Counted:
    """One total since the store was made. A label that does not apply is empty."""

    what: Count
    #: For ``SCHEDULE_SUCCESS`` the schedule.
    task: str
    total: int
    state: str = ""
    reason: str = ""
    #: The class of the failure; for ``*_WITHIN`` the place of the bound in :data:`BOUNDS`.
    failure_class: str = ""


@dataclass(frozen=True, slots=True)
class Standing:
    """Jobs of one task that are in one state now, by queue: those that have not ended, and dead letters."""

    state: str
    queue: str
    task: str
    jobs: int
    #: How long the oldest has been due (pending; zero where none is), published (sent), at work (running), or dead.
    oldest: timedelta
    #: Of those that run: how many hold a live lease.
    leased: int = 0
