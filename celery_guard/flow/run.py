"""The way through: one delivery of one job, from its claim to its settled row.

    claim -> body -> decide -> settle -> tell

A delivery is only a wake-up call: it may be late, doubled or wrong. What counts is what the claim answers::

    delivery A        delivery B (a duplicate)        the row
    claim ----------------------------------------->  sent -> running, fence 7, owner A
                      claim ----------------------->  Leased: B does nothing, the store brings the job back if A dies
    body
    settle (7, A) --------------------------------->  running -> succeeded, result, what follows: one transaction
                      claim ----------------------->  Settled: B does nothing, or tells what A had no time to tell
    tell Celery
    told ------------------------------------------>  told

Killed before settle: the lease lapses and the sweep brings the job back. Killed after it: the row is ended but untold, and
the sweep publishes it once more; that delivery is answered ``Settled(tell=True)`` and hands back what is stored, without the body.
A body that writes through ``job.transaction()`` is settled in that transaction. Two round trips: claim and settle. ``told`` is written in batches, later, by the lease keeper.
"""

from __future__ import annotations

import logging
import random
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Protocol, Union

from celery_guard.contract.classify import FailureClass
from celery_guard.contract.contract import Effective
from celery_guard.errors import DeadlinePassed, JobCancelled, JobFailed, LeaseLost, StoreError
from celery_guard.job.decide import Next, after_failure, after_limit, after_retry_asked, final
from celery_guard.job.failure import describe
from celery_guard.job.outcome import (
    Failed,
    HandedOver,
    Ignored,
    Interrupted,
    Outcome,
    OutOfTime,
    Rejected,
    Replaced,
    RetryAsked,
    Returned,
    Stopped,
)
from celery_guard.job.row import NewJob, Payload, StoredFailure, StoredResult
from celery_guard.job.settlement import Settlement
from celery_guard.job.state import Reason, State
from celery_guard.job.verdict import Granted, Leased, Missing, NotDue, Settled
from celery_guard.settings import Settings
from celery_guard.store.protocol import Store

from .context import RunningJob, running_job
from .lease import LeaseKeeper

__all__ = [
    "Again",
    "Body",
    "Dead",
    "Delivery",
    "Done",
    "Ending",
    "HandBack",
    "Nothing",
    "Runner",
    "Stale",
    "Unheard",
    "Withdrawn",
]

logger = logging.getLogger("celery_guard.run")


class Body(Protocol):
    """A delivery's body, as the integration runs it. Its methods say how it came back, and raise nothing."""

    def run(self, job: RunningJob) -> Outcome:
        """Run it."""
        ...

    def given(self, job: RunningJob, result: StoredResult | None) -> Outcome:
        """Do not run it: the job is given this result, and goes on from there as if it had returned it."""
        ...


@dataclass(frozen=True, slots=True)
class Delivery:
    """A message that reached a worker: whose it is, and whether anything at Celery's side waits for its outcome."""

    id: str
    task: str
    contract: Effective
    worker: str
    tells_success: bool
    tells_failure: bool


@dataclass(frozen=True, slots=True)
class Done:
    """Settled as succeeded: tell Celery the body's value."""

    fence: int


@dataclass(frozen=True, slots=True)
class Again:
    """Settled as pending: the relay brings the job back after ``delay``."""

    next: Next
    error: BaseException | None


@dataclass(frozen=True, slots=True)
class Dead:
    """Settled as dead (or dropped): tell Celery the failure."""

    fence: int
    next: Next
    error: BaseException


@dataclass(frozen=True, slots=True)
class Withdrawn:
    """Settled as cancelled: tell Celery it was revoked."""

    fence: int


@dataclass(frozen=True, slots=True)
class HandBack:
    """Ended before, and this delivery is the one to tell Celery what is stored."""

    settled: Settled


@dataclass(frozen=True, slots=True)
class Nothing:
    """Not for this delivery to do anything about: running elsewhere, not due, or ended and told."""

    why: str


@dataclass(frozen=True, slots=True)
class Stale:
    """The settle was refused: this attempt does not own the job any more. Say nothing to anybody."""

    fence: int


@dataclass(frozen=True, slots=True)
class Unheard:
    """The store has no such job."""


Ending = Union[Done, Again, Dead, Withdrawn, HandBack, Nothing, Stale, Unheard]


class Runner:
    """Runs deliveries in one process."""

    def __init__(self, store: Store, keeper: LeaseKeeper, settings: Settings, owner: Callable[[], str]) -> None:
        self._store = store
        self._keeper = keeper
        self._settings = settings
        self._owner = owner
        self._draw = random.Random()

    def run(self, delivery: Delivery, body: Body) -> Ending:
        """Take one delivery through its whole journey.

        Raises:
            StoreUnavailableError: the store could not be asked, or not be told; the job is unfinished and will come back.
        """
        lease = delivery.contract.timing.lease or self._settings.lease
        asked = time.monotonic()
        verdict = self._store.claim(delivery.id, self._owner(), lease)
        match verdict:
            case Granted():
                return self._attempt(delivery, verdict, body, lease, asked)
            case Settled(tell=True):
                return HandBack(verdict)
            case Settled(state=state):
                return Nothing(f"already {state.value}")
            case Leased(owner=owner):
                return Nothing(f"running under the lease of {owner}")
            case NotDue(reason=reason):
                return Nothing(f"not due yet ({reason.value if reason else 'new'})")
            case Missing():
                return Unheard()

    def _attempt(self, delivery: Delivery, granted: Granted, body: Body, lease: timedelta, asked: float) -> Ending:
        timing = delivery.contract.timing
        job = RunningJob(granted, self._store, self._keeper, lease, timing.attempt, asked)
        self._keeper.hold(job, lease, timing)
        try:
            outcome = self._outcome(job, granted, body)
            if _gave_up(outcome):
                return self._stale(delivery, granted, outcome)
            settlement, ending = self._decide(delivery, granted, outcome, job.elapsed)
            try:
                written = self._settle(job, settlement)
            except StoreError:
                raise
            except Exception as error:  # noqa: BLE001 - the database has something against the body's own writes
                outcome = Failed(error)
                settlement, ending = self._decide(delivery, granted, outcome, job.elapsed)
                written = self._store.settle(settlement)
        finally:
            if job.enlisted is not None:
                job.enlisted.rollback()
            self._keeper.let_go(job)
        return ending if written else self._stale(delivery, granted, outcome)

    def _stale(self, delivery: Delivery, granted: Granted, outcome: Outcome) -> Stale:
        """Not the owner any more. If nobody has taken the job yet, the sweep does, which counts how often that happens."""
        self._store.note(granted.id, self._superseded(delivery, granted, outcome))
        logger.warning("job %s: fence %d is not the owner any more; its outcome is void", granted.id, granted.fence)
        return Stale(granted.fence)

    def _settle(self, job: RunningJob, settlement: Settlement) -> bool:
        """In one transaction with what the body wrote, where it wrote through the guard and has succeeded."""
        if job.enlisted is None:
            return self._store.settle(settlement)
        if settlement.state is State.SUCCEEDED or settlement.reason in (Reason.REPLACED, Reason.HANDED_OVER):
            return job.enlisted.commit(settlement)
        job.enlisted.rollback()
        return self._store.settle(settlement)

    def _outcome(self, job: RunningJob, granted: Granted, body: Body) -> Outcome:
        if granted.cancel:
            return Stopped(JobCancelled(f"Job {job.id} was cancelled before it started."))
        if granted.remaining is not None and granted.remaining <= timedelta(0):
            return Stopped(DeadlinePassed(f"Job {job.id}: its deadline {job.deadline} was over before it started."))
        token = running_job.set(job)
        try:
            return self._follow_holder(job, granted.holder, body) if granted.holder else body.run(job)
        finally:
            running_job.reset(token)

    def _follow_holder(self, job: RunningJob, holder: str, body: Body) -> Outcome:
        """A duplicate inside a canvas is given the outcome of the job that holds its key."""
        found = self._store.outcome(holder)
        if found is not None and found[0] is State.SUCCEEDED:
            return body.given(job, found[1])
        how = "is gone" if found is None else f"ended as {found[0].value}"
        failure = None if found is None else found[2]
        why = f": {failure.type_name}: {failure.message}" if failure else ""
        return Failed(
            JobFailed(f"Job {holder}, which holds this job's key, {how}{why}", reason=Reason.HOLDER_ENDED.value)
        )

    def _decide(
        self, delivery: Delivery, granted: Granted, outcome: Outcome, elapsed: timedelta
    ) -> tuple[Settlement, Ending]:
        write = _Writer(delivery, granted, self._settings)
        contract = delivery.contract
        match outcome:
            case Returned(result=result, follow=follow):
                return write.succeeded(result, follow)
            case Ignored():
                return write.succeeded(None, (), Reason.IGNORED)
            case Failed(error=error, final=Reason() as reason):
                return write.next(final(contract, reason, error), error)
            case Failed(error=error):
                return write.next(after_failure(granted, error, contract, elapsed, self._draw), error)
            case RetryAsked(error=error, bounded=False) if not _may_ask_again(granted, contract):
                return write.next(final(contract, Reason.EXHAUSTED, error or _ASKED_TOO_OFTEN), error)
            case RetryAsked(error=error, delay=delay, payload=payload, queue=queue):
                next = after_retry_asked(granted, error, delay, contract, elapsed, self._draw)
                return write.next(next, error, payload, queue=queue)
            case Rejected(error=error, requeue=True) if _may_ask_again(granted, contract):
                return write.next(after_retry_asked(granted, error, None, contract, elapsed, self._draw), error)
            case Rejected(error=error):
                return write.next(final(contract, Reason.REJECTED, error), error)
            case Replaced(by=by, follow=follow):
                return write.carried_on(by, follow)
            case HandedOver(follow=follow):
                return write.handed_over(follow)
            case Stopped(error=JobCancelled()):
                return write.withdrawn()
            case Stopped(error=DeadlinePassed() as error) if granted.remaining is None or elapsed < granted.remaining:
                return write.next(after_limit(granted, contract, elapsed, self._draw), error)
            case Stopped(error=DeadlinePassed() as error):
                return write.next(final(contract, Reason.EXPIRED, error), error)
            case Stopped(error=error):
                raise AssertionError(f"nobody settles after {error!r}")
            case OutOfTime(error=error):
                next = after_limit(granted, contract, elapsed, self._draw)
                return write.next(next, error, tell_within=timedelta(0))
            case Interrupted(error=error, by_shutdown=True):
                return write.uncharged(error)
            case Interrupted(error=error):
                return write.next(after_failure(granted, error, contract, elapsed, self._draw), error)

    def _superseded(self, delivery: Delivery, granted: Granted, outcome: Outcome) -> StoredFailure:
        error = getattr(outcome, "error", None) or LeaseLost(
            f"This attempt ended as {type(outcome).__name__.lower()} after it had lost the job."
        )
        return describe(
            error, failure_class="superseded", task=delivery.task, worker=delivery.worker, fence=granted.fence,
            attempt=granted.attempts,
        )  # fmt: skip


def _gave_up(outcome: Outcome) -> bool:
    """The body stopped because it is not the owner any more."""
    return isinstance(outcome, Stopped) and not isinstance(outcome.error, (JobCancelled, DeadlinePassed))


_ASKED_TOO_OFTEN = JobFailed("The body asked for another run more often than it may.", reason=Reason.EXHAUSTED.value)


def _may_ask_again(granted: Granted, contract: Effective) -> bool:
    """A body that gives its message back asks for another run, as often as it may call ``self.retry``."""
    return contract.explicit_retries is None or granted.retries < contract.explicit_retries


class _Writer:
    """Turns where the job goes into what settle writes, and what Celery is to hear."""

    def __init__(self, delivery: Delivery, granted: Granted, settings: Settings) -> None:
        self._delivery = delivery
        self._granted = granted
        self._settings = settings

    def succeeded(
        self, result: StoredResult | None, follow: tuple[NewJob, ...], reason: Reason | None = None
    ) -> tuple[Settlement, Ending]:
        written = self._settlement(
            State.SUCCEEDED, reason, told=not self._delivery.tells_success, keep=self._settings.keep,
            result=result, follow=follow,
        )  # fmt: skip
        return written, Done(self._granted.fence)

    def next(
        self,
        next: Next,
        error: BaseException | None,
        payload: Payload | None = None,
        *,
        queue: str | None = None,
        tell_within: timedelta | None = None,
    ) -> tuple[Settlement, Ending]:
        failure = None if error is None else self._describe(error, next)
        if next.again:
            written = self._settlement(
                next.state, next.reason, delay=next.delay, failure=failure, payload=payload, queue=queue, retried=True
            )
            return written, Again(next, error)
        if error is None:
            error = JobFailed(f"Job {self._granted.id} ended as {next.reason}.", reason=str(next.reason))
            failure = self._describe(error, next)
        written = self._settlement(
            next.state,
            next.reason,
            told=not self._delivery.tells_failure,
            tell_within=self._settings.tell_within if tell_within is None else tell_within,
            keep=self._settings.keep_dead,
            failure=failure,
        )
        return written, Dead(self._granted.fence, next, error)

    def withdrawn(self) -> tuple[Settlement, Ending]:
        told = not self._delivery.tells_failure
        return self._settlement(State.CANCELLED, None, told=told, keep=self._settings.keep), Withdrawn(
            self._granted.fence
        )

    def carried_on(self, by: NewJob, follow: tuple[NewJob, ...]) -> tuple[Settlement, Ending]:
        next = Next(State.PENDING, Reason.REPLACED)
        written = self._settlement(
            next.state, next.reason, payload=by.payload, task=by.task, queue=by.queue, kind=by.kind, follow=follow,
            charged=False,
        )  # fmt: skip
        return written, Again(next, None)

    def handed_over(self, follow: tuple[NewJob, ...]) -> tuple[Settlement, Ending]:
        next = Next(State.PENDING, Reason.HANDED_OVER, self._settings.keep)
        written = self._settlement(next.state, next.reason, delay=next.delay, follow=follow, charged=False)
        return written, Again(next, None)

    def uncharged(self, error: BaseException) -> tuple[Settlement, Ending]:
        next = Next(State.PENDING, Reason.INTERRUPTED)
        return self._settlement(next.state, next.reason, charged=False), Again(next, error)

    def _settlement(self, state: State, reason: Reason | None, **more: Any) -> Settlement:
        granted = self._granted
        more.setdefault("tell_within", self._settings.tell_within)
        return Settlement(granted.id, granted.fence, granted.owner, state, reason, **more)

    def _describe(self, error: BaseException, next: Next) -> StoredFailure:
        return describe(
            error, failure_class=(next.failure_class or FailureClass.UNKNOWN).value, task=self._delivery.task,
            worker=self._delivery.worker, fence=self._granted.fence, attempt=self._granted.attempts,
        )  # fmt: skip
