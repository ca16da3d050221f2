"""What follows from how an attempt ended: the rules of retry, crash and death, as pure functions.

Nothing here reads a clock or a store. What time it is comes in as durations that the store measured.

The bounds, each counted where it cannot be forgotten:

=============  ========================================  ==========================================
bound          counted                                   over it
=============  ========================================  ==========================================
attempts       when an attempt is claimed                ``dead`` (exhausted, or time_limit)
crashes        when the sweep takes a lapsed lease       ``dead`` (crashed)
wall-clock     from acceptance, ``Retry.within``         ``dead`` (exhausted)
deadline       from acceptance, unchanged by retries     ``dead`` (expired)
versions, keys from when it was first held for its        ``dead`` (held_version,
               version or key, in this wait              held_encryption)
interruptions  in a row; an attempt that ends by itself   ``dead`` (interrupted, or held_key)
               starts the count anew
=============  ========================================  ==========================================

A retry that could only start after the deadline is not scheduled.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, replace
from datetime import timedelta

from celery_guard.contract.backoff import Backoff
from celery_guard.contract.classify import Classified, FailureClass, classify, retryable
from celery_guard.contract.contract import Effective

from .row import Attempt
from .state import Reason, State
from .verdict import Granted

__all__ = [
    "Next",
    "after_contention",
    "after_crash",
    "after_failure",
    "after_given_back",
    "after_hold",
    "after_interruption",
    "after_limit",
    "after_retry_asked",
    "attempts_made",
    "final",
    "may_ask_again",
]

_NO_DELAY = timedelta(0)

#: A job that is held for its version is offered again after this long, then after as long as it has waited, but no later than the longest.
_HOLD_FIRST = timedelta(seconds=1)
_HOLD_LONGEST = timedelta(minutes=5)


#: So many interruptions in a row cost no delay: a deploy may well meet a job more than once. After that the delays grow.
_AT_ONCE = 3
_INTERRUPTED = Backoff(base=1, cap=300)


@dataclass(frozen=True, slots=True)
class Next:
    """Where the job goes from here."""

    state: State
    reason: Reason | None
    delay: timedelta = _NO_DELAY
    failure_class: FailureClass | None = None
    #: For another run: whether it is one retry further, as Celery's ``request.retries`` counts.
    retried: bool = True

    @property
    def again(self) -> bool:
        """The job will run again."""
        return self.state is State.PENDING


def attempts_made(granted: Granted) -> int:
    """Attempts that came to an end of their own: crashes have a bound of their own."""
    return granted.attempts - granted.crashes


def after_failure(
    granted: Granted, error: BaseException, contract: Effective, elapsed: timedelta, draw: random.Random
) -> Next:
    """The body raised ``error``, ``elapsed`` after it was claimed."""
    found = classify(error, contract.retry)
    if not retryable(found.failure_class, contract.retry):
        return _ended(contract, Reason.FAILED, found)
    limit = contract.retry.max_attempts
    if limit is not None and attempts_made(granted) >= limit:
        return _ended(contract, Reason.EXHAUSTED if limit > 1 else Reason.FAILED, found)
    delay = contract.retry.delay(granted.retries, found.floor, draw)
    return _again(granted, contract, elapsed, delay, found)


def after_retry_asked(
    granted: Granted,
    error: BaseException | None,
    delay: timedelta | None,
    contract: Effective,
    elapsed: timedelta,
    draw: random.Random,
) -> Next:
    """The body asked for another run.

    ``Task.retry`` has already applied its own bound (``max_retries``); the contract's wall-clock and deadline hold for it too.
    """
    found = classify(error, contract.retry) if error is not None else Classified(FailureClass.TRANSIENT, None)
    if delay is None:
        delay = contract.retry.delay(granted.retries, found.floor, draw)
    return _again(granted, contract, elapsed, delay, found)


def after_given_back(
    granted: Granted, error: BaseException, contract: Effective, elapsed: timedelta, draw: random.Random
) -> Next:
    """The body gave its message back (``Reject(requeue=True)``): at once, as in Celery, where no policy was declared.

    To Celery that is a redelivery and no retry, so attempts are counted.
    """
    if not may_ask_again(attempts_made(granted) - 1, contract):
        return final(contract, Reason.REJECTED, error)
    delay = None if contract.retry_declared else _NO_DELAY
    return replace(after_retry_asked(granted, error, delay, contract, elapsed, draw), retried=False)


def may_ask_again(asked: int, contract: Effective) -> bool:
    """A body may raise ``Retry``, or give its message back, as often as it may call ``self.retry``."""
    return contract.explicit_retries is None or asked < contract.explicit_retries


def final(contract: Effective, reason: Reason, error: BaseException) -> Next:
    """The job ends here whatever its policy: dead, or dropped where the contract lets it."""
    return _ended(contract, reason, classify(error, contract.retry))


def after_limit(granted: Granted, contract: Effective, elapsed: timedelta, draw: random.Random) -> Next:
    """The attempt used up its limit (``Timing.attempt``), and was stopped there."""
    remaining = None if granted.remaining is None else granted.remaining - elapsed
    return _over_limit(attempts_made(granted), granted.retries, granted.age + elapsed, remaining, contract, draw)


def after_crash(attempt: Attempt, contract: Effective, lease: timedelta, backoff: Backoff, draw: random.Random) -> Next:
    """The lease of ``attempt``, ``lease`` long, lapsed: its process died, hung, was cut off, or was killed at its limit.

    It was killed at its limit if it renewed its lease right before that (``Timing.last_renewal``). How long ago it started says
    nothing: one that died in its first second is found when its lease is over, which may be after the limit too.
    """
    if attempt.cancel:
        return Next(State.CANCELLED, None)
    seen = contract.timing.near_limit
    if seen is not None and attempt.leased - lease >= seen:
        made = attempt.attempts - attempt.crashes
        return _over_limit(made, attempt.retries, attempt.total, attempt.remaining, contract, draw)
    found = Classified(FailureClass.UNKNOWN, None)
    if attempt.crashes + 1 >= contract.retry.max_crashes:
        return _ended(contract, Reason.CRASHED, found)
    return _within_deadline(attempt.remaining, contract, backoff.delay(attempt.crashes, draw), Reason.LOST, found)


def after_interruption(granted: Granted, contract: Effective, bound: int, draw: random.Random) -> Next:
    """The attempt was cut short by its worker, which goes down. ``bound``: how often in a row that may happen."""
    return _not_counted(granted, contract, Reason.INTERRUPTED, bound, _AT_ONCE, draw)


def after_contention(granted: Granted, contract: Effective, bound: int, draw: random.Random) -> Next:
    """The attempt's end could not be written, for an open transaction is taking the key of what follows."""
    return _not_counted(granted, contract, Reason.HELD_KEY, bound, 0, draw)


def _not_counted(
    granted: Granted, contract: Effective, reason: Reason, bound: int, at_once: int, draw: random.Random
) -> Next:
    before = granted.interruptions
    if before + 1 >= bound:
        return _ended(contract, reason, Classified(FailureClass.UNKNOWN, None))
    delay = _NO_DELAY if before < at_once else _INTERRUPTED.delay(before - at_once, draw)
    return Next(State.PENDING, reason, delay, retried=False)


def after_hold(
    granted: Granted,
    waited: timedelta | None,
    bound: timedelta,
    contract: Effective,
    draw: random.Random,
    reason: Reason = Reason.HELD_VERSION,
) -> Next:
    """This process does not know the message's version, or its key; it has waited for one that does for ``waited`` already.

    Each wait is about as long as all before it, so its delays double; they are drawn from their upper half, so that what was
    parked together does not come back together.
    """
    found = Classified(FailureClass.PERMANENT, None)
    if waited is not None and waited >= bound:
        return _ended(contract, reason, found)
    longest = min(_HOLD_LONGEST, max(_HOLD_FIRST, waited or _NO_DELAY))
    delay = min(longest * draw.uniform(0.5, 1.0), bound - (waited or _NO_DELAY))
    return Next(State.PENDING, reason, delay)


def _over_limit(
    made: int, retries: int, age: timedelta, remaining: timedelta | None, contract: Effective, draw: random.Random
) -> Next:
    """``made`` attempts ended by themselves, ``age`` after the job was accepted, and the last one at its limit."""
    found = classify(TimeoutError(), contract.retry)
    bound, within = contract.retry.max_attempts, contract.retry.within
    delay = contract.retry.delay(retries, None, draw)
    spent = (bound is not None and made >= bound) or (within is not None and age + delay > within)
    if spent or not retryable(found.failure_class, contract.retry):
        return _ended(contract, Reason.TIME_LIMIT, found)
    return _within_deadline(remaining, contract, delay, Reason.RETRY, found)


def _again(granted: Granted, contract: Effective, elapsed: timedelta, delay: timedelta, found: Classified) -> Next:
    within = contract.retry.within
    if within is not None and granted.age + elapsed + delay > within:
        return _ended(contract, Reason.EXHAUSTED, found)
    remaining = None if granted.remaining is None else granted.remaining - elapsed
    return _within_deadline(remaining, contract, delay, Reason.RETRY, found)


def _within_deadline(
    remaining: timedelta | None, contract: Effective, delay: timedelta, reason: Reason, found: Classified
) -> Next:
    if remaining is not None and delay >= remaining:
        return _ended(contract, Reason.EXPIRED, found)
    return Next(State.PENDING, reason, delay, found.failure_class)


def _ended(contract: Effective, reason: Reason, found: Classified) -> Next:
    return Next(State.DROPPED if contract.best_effort else State.DEAD, reason, _NO_DELAY, found.failure_class)
