"""One line a transition, on the logger ``celery_guard.job``: an observer that logs.

========  ================================================================================================
DEBUG     enqueued, published, claimed: what goes on all the time
INFO      succeeded, sent again by the contract, cancelled, replayed, a duplicate
WARNING   a crash, a lost message, a lease that was late or lost, a key taken by another payload
ERROR     dead; an attempt whose end could not be written
========  ================================================================================================

A failure is named by its class, its type and its cause group, never by what the exception of a body says: that may be an argument.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from celery_guard.job.event import (
    Abandoned,
    Cancelled,
    Claimed,
    Conflicted,
    Duplicated,
    Ended,
    Enqueued,
    Event,
    Fenced,
    Ignored,
    Published,
    Recovered,
    RenewedLate,
    Replayed,
    Settled,
)
from celery_guard.job.row import StoredFailure
from celery_guard.job.state import Reason, State

from .logs import describing, install

__all__ = ["Lines"]

logger = logging.getLogger("celery_guard.job")

#: What goes on all the time.
_GOES_ON = frozenset({Enqueued, Published, Claimed})


@dataclass(frozen=True, slots=True)
class _Line:
    level: int
    text: str
    transition: str | None = None
    failure: StoredFailure | None = None
    key: str | None = None
    tenant: str | None = None
    correlation_id: str | None = None
    attempt: int | None = None


class Lines:
    """Logs what it is told."""

    def hears(self, kind: type[Event]) -> bool:
        """Whether a line is made of such an event, as the logger is set now."""
        return kind not in _GOES_ON or logger.isEnabledFor(logging.DEBUG)

    def told(self, event: Event) -> None:
        """See :class:`~celery_guard.watch.observers.Observer`."""
        if not logger.isEnabledFor(_at_most(event)):
            return
        line = _line(event)
        if line is None or not logger.isEnabledFor(line.level):
            return
        failure = line.failure
        install()
        with describing(
            job_id=event.id, task=event.task or None, attempt=line.attempt, key=line.key, tenant=line.tenant,
            correlation_id=line.correlation_id, event=type(event).__name__.lower(), transition=line.transition,
            failure_class=None if failure is None else failure.failure_class,
        ):  # fmt: skip
            logger.log(line.level, "job %s%s: %s", event.id, f" ({event.task})" if event.task else "", line.text)


def _at_most(event: Event) -> int:
    """The level that an event's line does not exceed: nothing is put into words where nobody reads it."""
    if type(event) in _GOES_ON:
        return logging.DEBUG
    return logging.INFO if isinstance(event, Settled) and event.state is State.SUCCEEDED else logging.CRITICAL


def _line(event: Event) -> _Line | None:
    match event:
        case Enqueued(delay=delay, holder=holder):
            later = f", due in {delay}" if delay else ""
            follows = f", with the outcome of {holder}" if holder else ""
            return _about(
                event, _Line(logging.DEBUG, f"enqueued on {event.queue}{later}{follows}", f"->{State.PENDING.value}")
            )
        case Duplicated(holder=holder):
            return _Line(logging.INFO, f"a duplicate of job {holder}; nothing was written", key=event.key)
        case Conflicted(holder=holder):
            text = f"refused, job {holder} has its key with another payload"
            return _Line(logging.WARNING, text, key=event.key)
        case Published(publication=number):
            again = f", for the {number}. time" if number > 1 else ""
            return _Line(logging.DEBUG, f"published to {event.queue}{again}", _move(State.PENDING, State.SENT))
        case Claimed():
            return _of(event, logging.DEBUG, f"attempt {event.attempt} begins", _move(State.SENT, State.RUNNING))
        case Ignored(why=why):
            return _Line(logging.INFO, f"nothing to do for this delivery, the job is {why}")
        case Settled():
            return _settled(event)
        case Fenced():
            text = f"fence {event.claim.fence} is not the owner any more; its outcome is void"
            return _of(event.claim, logging.WARNING, text)
        case Abandoned(error=error):
            return _of(event.claim, logging.ERROR, f"its end could not be written ({error}); it will be brought back")
        case RenewedLate(late=late):
            return _Line(logging.WARNING, f"its lease was renewed {late} after it had lapsed")
        case _:
            return _by_others(event)


def _by_others(event: Event) -> _Line | None:
    """What happens to a job outside of an attempt of its own."""
    match event:
        case Recovered(crashed=True):
            text = f"the lease of {event.owner} lapsed, {_next(event.state, event.reason, event.delay)}"
            level = logging.ERROR if event.state is State.DEAD else logging.WARNING
            return _Line(level, f"{text}{_words(event.failure)}", _move(State.RUNNING, event.state), event.failure)
        case Recovered():
            why = "nobody took it" if event.failure is None else event.failure.message
            level = logging.ERROR if event.state is State.DEAD else logging.WARNING
            text = f"{why}; {_next(event.state, event.reason, event.delay)}"
            return _Line(level, text, _move(State.SENT, event.state), event.failure)
        case Ended():
            why = "" if event.failure is None else f": {event.failure.message}"
            text = f"{_next(event.state, event.reason, timedelta(0))}{why}"
            return _Line(logging.ERROR, text, _move(State.PENDING, event.state), event.failure)
        case Cancelled(answer=answer):
            return _Line(logging.INFO, f"a person asked for it to stop: {answer}")
        case Replayed(answer=answer, why=why):
            return _Line(logging.INFO, f"{answer}{f' ({why})' if why else ''}", _move(State.DEAD, State.PENDING))
    return None


def _settled(event: Settled) -> _Line:
    claim = event.claim
    if event.state is State.PENDING and event.reason in (Reason.HELD_VERSION, Reason.HELD_ENCRYPTION):
        # noted when the wait began, in the guard's own words
        level, why = (logging.INFO, "") if event.failure is None else (logging.WARNING, f": {event.failure.message}")
        text = f"its body does not begin here, {_next(event.state, event.reason, event.delay)}{why}"
        return _of(claim, level, text, _move(State.RUNNING, event.state), event.failure)
    level = logging.ERROR if event.state is State.DEAD else logging.INFO
    text = (
        f"attempt {claim.attempt} took {event.elapsed.total_seconds():.3f} s, "
        f"{_next(event.state, event.reason, event.delay)}{_words(event.failure)}"
    )
    return _of(claim, level, text, _move(State.RUNNING, event.state), event.failure)


def _next(state: State, reason: Reason | None, delay: timedelta) -> str:
    why = f" ({reason.value})" if reason is not None else ""
    return f"next attempt in {delay}{why}" if state is State.PENDING else f"the job is {state.value}{why}"


def _words(failure: StoredFailure | None) -> str:
    return "" if failure is None else f": {failure.failure_class} {failure.type_name}, cause {failure.cause}"


def _move(before: State, after: State) -> str:
    return f"{before.value}->{after.value}"


def _about(event: Any, line: _Line) -> _Line:
    return _Line(
        line.level, line.text, line.transition, key=event.key, tenant=event.tenant, correlation_id=event.correlation_id
    )


def _of(
    claim: Claimed, level: int, text: str, transition: str | None = None, failure: StoredFailure | None = None
) -> _Line:
    return _Line(level, text, transition, failure, claim.key, claim.tenant, claim.correlation_id, claim.attempt)
