"""From how a body came back to what is written and what is told: the pure middle of the way through.

The rules themselves (how often, how late, how bad) are in :mod:`celery_guard.job.decide`; here each outcome is given its rule.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

from celery_guard.contract.failure_class import FailureClass
from celery_guard.errors import (
    DeadlinePassed,
    EncryptionKeyError,
    JobCancelled,
    JobFailed,
    LeaseLost,
    PayloadVersionError,
)
from celery_guard.settings import Settings

from .decide import (
    Next,
    after_contention,
    after_failure,
    after_given_back,
    after_hold,
    after_interruption,
    after_limit,
    after_retry_asked,
    final,
    may_ask_again,
)
from .delivery import Again, Dead, Delivery, Done, Ending, Withdrawn
from .failure import describe
from .outcome import (
    Contended,
    Failed,
    HandedOver,
    Held,
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
from .row import NewJob, StoredFailure, StoredPayload, StoredResult
from .settlement import Settlement
from .state import Reason, State
from .verdict import Granted

__all__ = ["conclude", "held_since", "superseded"]

#: The class of the record that a job was held: no failure of its body.
_HELD = "control"
_HELD_FOR = frozenset(f"{kind.__module__}.{kind.__qualname__}" for kind in (PayloadVersionError, EncryptionKeyError))
_SUPERSEDED = "superseded"


def conclude(
    delivery: Delivery,
    granted: Granted,
    outcome: Outcome,
    elapsed: timedelta,
    settings: Settings,
    draw: random.Random,
) -> tuple[Settlement, Ending]:
    """Turn how a body came back, ``elapsed`` after its claim, into what settle writes and what the delivery is told."""
    write = _Writer(delivery, granted, settings)
    contract = delivery.contract
    match outcome:
        case Returned(result=result, follow=follow):
            return write.succeeded(result, follow)
        case Ignored():
            return write.succeeded(None, (), Reason.IGNORED)
        case Failed(error=error, final=Reason() as reason):
            return write.next(final(contract, reason, error), error)
        case Failed(error=error):
            return write.next(after_failure(granted, error, contract, elapsed, draw), error)
        case Held(error=error, waited=waited):
            reason = Reason.HELD_ENCRYPTION if isinstance(error, EncryptionKeyError) else Reason.HELD_VERSION
            return write.held(after_hold(granted, waited, settings.hold_version, contract, draw, reason), error, waited)
        case RetryAsked(error=error, bounded=False) if not may_ask_again(granted.retries, contract):
            return write.next(final(contract, Reason.EXHAUSTED, error or _ASKED_TOO_OFTEN), error)
        case RetryAsked(error=error, delay=delay, payload=payload, queue=queue):
            next = after_retry_asked(granted, error, delay, contract, elapsed, draw)
            return write.next(next, error, payload, queue=queue)
        case Rejected(error=error, requeue=True):
            return write.next(after_given_back(granted, error, contract, elapsed, draw), error)
        case Rejected(error=error):
            return write.next(final(contract, Reason.REJECTED, error), error)
        case Replaced(by=by, follow=follow):
            return write.carried_on(by, follow)
        case HandedOver(follow=follow):
            return write.handed_over(follow)
        case Stopped(error=JobCancelled()):
            return write.withdrawn()
        case Stopped(error=DeadlinePassed() as error) if granted.remaining is None or elapsed < granted.remaining:
            return write.next(after_limit(granted, contract, elapsed, draw), error)
        case Stopped(error=DeadlinePassed() as error):
            return write.next(final(contract, Reason.EXPIRED, error), error)
        case Stopped(error=error):
            raise AssertionError(f"nobody settles after {error!r}")
        case OutOfTime(error=error):
            next = after_limit(granted, contract, elapsed, draw)
            return write.next(next, error, tell_within=timedelta(0))
        case Interrupted(error=error, by_shutdown=True):
            return write.interrupted(after_interruption(granted, contract, settings.max_interruptions, draw), error)
        case Contended(error=error):
            return write.interrupted(after_contention(granted, contract, settings.max_interruptions, draw), error)
        case Interrupted(error=error):
            return write.next(after_failure(granted, error, contract, elapsed, draw), error)


def held_since(failures: Sequence[StoredFailure]) -> datetime | None:
    """When the wait of a held job began; None where nothing says that it is held, or it has run since. ``failures``: oldest first."""
    last = next((failure for failure in reversed(failures) if failure.failure_class != _SUPERSEDED), None)
    if last is None or last.failure_class != _HELD or last.type_name not in _HELD_FOR:
        return None
    return last.at


def superseded(delivery: Delivery, granted: Granted, outcome: Outcome) -> StoredFailure:
    """The record of an attempt that came back when it was not the owner any more."""
    error = getattr(outcome, "error", None) or LeaseLost(
        f"This attempt ended as {type(outcome).__name__.lower()} after it had lost the job."
    )
    return describe(
        error, failure_class=_SUPERSEDED, task=delivery.task, worker=delivery.worker, fence=granted.fence,
        attempt=granted.attempts,
    )  # fmt: skip


_ASKED_TOO_OFTEN = JobFailed("The body asked for another run more often than it may.", reason=Reason.EXHAUSTED.value)


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
        return written, Done(self._granted.fence, written.told)

    def next(
        self,
        next: Next,
        error: BaseException | None,
        payload: StoredPayload | None = None,
        *,
        queue: str | None = None,
        tell_within: timedelta | None = None,
    ) -> tuple[Settlement, Ending]:
        failure = None if error is None else self._describe(error, next)
        if next.again:
            written = self._settlement(
                next.state, next.reason, delay=next.delay, failure=failure, payload=payload, queue=queue,
                retried=next.retried,
            )  # fmt: skip
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

    def held(self, next: Next, error: BaseException, waited: timedelta | None) -> tuple[Settlement, Ending]:
        """Not charged. The first time is noted, for a person to see why, and for the next time to know how long it has been."""
        if not next.again:
            written, ending = self.next(next, error)
            return replace(written, charged=False), ending
        note = None if waited is not None else replace(self._describe(error, next), failure_class=_HELD)
        return self._settlement(next.state, next.reason, delay=next.delay, failure=note, charged=False), Again(
            next, error
        )

    def interrupted(self, next: Next, error: BaseException) -> tuple[Settlement, Ending]:
        """Not charged, but counted: a job that is never let to its end is to end, too."""
        if not next.again:
            written, ending = self.next(next, error)
            return replace(written, charged=False, interrupted=True), ending
        written = self._settlement(next.state, next.reason, delay=next.delay, charged=False, interrupted=True)
        return written, Again(next, error)

    def _settlement(self, state: State, reason: Reason | None, **more: Any) -> Settlement:
        granted = self._granted
        more.setdefault("tell_within", self._settings.tell_within)
        more.setdefault("interrupted", False if more.get("charged", True) else None)
        return Settlement(granted.id, granted.fence, granted.owner, state, reason, **more)

    def _describe(self, error: BaseException, next: Next) -> StoredFailure:
        return describe(
            error, failure_class=(next.failure_class or FailureClass.UNKNOWN).value, task=self._delivery.task,
            worker=self._delivery.worker, fence=self._granted.fence, attempt=self._granted.attempts,
        )  # fmt: skip
