"""The story of one job, from what the store keeps of it. A pure function of the row, its failures and the audit.

What is not kept is not made up: the row has the last publication, the last start and the last cancel only, and an attempt that succeeded or was
interrupted leaves no row of its own. :data:`NOT_KEPT` says so, for whoever prints the story.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone

from celery_guard.job.audit import AuditEntry, Outcome
from celery_guard.job.row import Job, StoredFailure
from celery_guard.job.state import ENDED, Reason, State

from .actor import Action

__all__ = ["NOT_KEPT", "Moment", "tell"]

NOT_KEPT = (
    "Not kept: publications and starts before the last ones, the claims and the generation of a job that was not changed on the way, attempts that "
    "were interrupted without a failure, and when Celery was told."
)

_LAST = datetime.max.replace(tzinfo=timezone.utc)


@dataclass(frozen=True, slots=True)
class Moment:
    """Something that happened to a job, or will."""

    #: None: it happened, and when is not kept.
    at: datetime | None
    #: ``accepted``, ``published``, ``started``, ``failed`` ...
    what: str
    detail: str = ""
    worker: str = ""
    fence: int | None = None


def tell(job: Job, audit: Iterable[AuditEntry] = ()) -> list[Moment]:
    """What happened, the oldest first; what has no time comes after what has one, what is yet to come at the end."""
    past = [*_life(job), *map(_failed, job.failures), *_acted(audit)]
    past.sort(key=lambda moment: moment.at or _LAST)
    return [*past, *_ahead(job)]


def _life(job: Job) -> Iterator[Moment]:
    yield Moment(job.created, "accepted", _accepted(job))
    if job.sent is not None:
        times = f"{job.publications} times since the last claim" if job.publications > 1 else ""
        yield Moment(job.sent, "published", f"to queue {job.queue}" + (f", {times}" if times else ""))
    if job.started is not None:
        attempt = f"attempt {job.attempts}" if job.attempts else ""
        yield Moment(job.started, "started", attempt, job.owner or "", job.fence)
    if job.progress is not None:
        yield Moment(job.progress.at, "progress", str(job.progress), job.owner or "", job.fence)
    if job.refusals:
        yield Moment(None, "refused", f"by the broker, {job.refusals} times")
    if job.cancel:
        yield Moment(None, "asked to stop")
    if job.replays:
        yield Moment(None, "replayed", f"{job.replays} times")
    if job.finished is not None:
        yield Moment(job.finished, job.shown_state, str(job.reason or ""))
    elif job.state is State.UNKNOWN:
        yield Moment(None, "unknown", "nobody knows whether it took effect")
    if job.told and job.state in ENDED:
        yield Moment(None, "told", "Celery knows how it ended")


def _accepted(job: Job) -> str:
    said = [f"for queue {job.queue}"]
    if job.holder is not None:
        said.append(f"following {job.holder}")
    if job.deadline is not None:
        said.append("with a deadline")
    return ", ".join(said)


def _failed(failure: StoredFailure) -> Moment:
    attempt = f"attempt {failure.attempt}: " if failure.attempt else ""
    said = f"{attempt}{failure.failure_class}, {failure.type_name}: {failure.message}"
    return Moment(failure.at, "failed", said, failure.worker, failure.fence)


def _acted(audit: Iterable[AuditEntry]) -> Iterator[Moment]:
    for entry in audit:
        if entry.outcome is Outcome.REFUSED:
            continue
        # what an edit has changed are arguments, which nobody is shown unasked
        said = entry.outcome is Outcome.INTENDED and entry.action == Action.DLQ_EDIT
        came = f" ({'the audit has what it changes' if said else entry.detail})" if entry.detail else ""
        yield Moment(entry.at, f"{entry.action} {entry.outcome}", f"by {entry.actor}: {entry.reason}{came}")


def _ahead(job: Job) -> Sequence[Moment]:
    if job.due is None:
        return ()
    if job.state is State.PENDING:
        what = "waits" if job.reason is Reason.HELD_KEY else "due"
        return (Moment(job.due, what, str(job.reason or "")),)
    names = {
        State.SENT: "published again, if no worker has taken it",
        State.RUNNING: "the lease ends",
        State.UNKNOWN: "looked at",
    }
    return (Moment(job.due, names.get(job.state, "Celery is told again")),)
