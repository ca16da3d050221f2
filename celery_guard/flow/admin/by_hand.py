"""What a person says about a job whose outcome is unknown, as a settlement. Decided here; written by the journeys."""

from __future__ import annotations

from datetime import timedelta

from celery_guard.contract.failure_class import FailureClass
from celery_guard.errors import JobFailed, MoveRefused
from celery_guard.job.failure import describe
from celery_guard.job.row import Job, StoredResult
from celery_guard.job.settlement import Settlement
from celery_guard.job.state import LEGAL, Reason, State
from celery_guard.settings import Settings

__all__ = ["settlement"]


def settlement(
    job: Job, state: State, actor: str, reason: str, result: StoredResult | None, settings: Settings
) -> Settlement:
    """How a person ends, or goes on with, a job whose outcome is unknown.

    Raises:
        MoveRefused: the job is not unknown, or there is no such way out of that.
    """
    if job.state is not State.UNKNOWN:
        raise MoveRefused(f"Job {job.id} is {job.shown_state}. Only a job whose outcome is unknown is settled by hand.")
    if (job.state, state) not in LEGAL:
        ways = ", ".join(to for of, to in LEGAL if of is State.UNKNOWN)
        raise MoveRefused(f"A job whose outcome is unknown cannot become {state}. There are: {ways}.")
    owner = job.owner or ""
    if state is State.PENDING:
        return Settlement(job.id, job.fence, owner, state, Reason.REPLAY)
    now = timedelta(0)
    if state is State.SUCCEEDED:
        return Settlement(job.id, job.fence, owner, state, tell_within=now, keep=settings.keep, result=result)
    failure = describe(
        JobFailed(f"Settled as dead by {actor}: {reason}"), failure_class=FailureClass.UNKNOWN, task=job.task, worker=actor,
        fence=job.fence, attempt=job.attempts,
    )  # fmt: skip
    return Settlement(
        job.id, job.fence, owner, state, Reason.FAILED, tell_within=now, keep=settings.keep_dead, failure=failure
    )
