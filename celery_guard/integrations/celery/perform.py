"""From Celery's call of a task to the guard's run, and from its ending back to what Celery understands.

The tracer calls the task; :func:`perform` runs the delivery. The body's exceptions become outcomes, the ending becomes a return value
or an exception. What Celery would send after the body (links, the chain's next step) was written by settle and is taken off the request.
"""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any, NoReturn

from billiard.exceptions import SoftTimeLimitExceeded
from celery import signature, states
from celery.backends.base import DisabledBackend
from celery.exceptions import Ignore, Reject, Retry, WorkerShutdown, WorkerTerminate
from celery.exceptions import SoftTimeLimitExceeded as CelerySoftTimeLimit
from kombu.exceptions import EncodeError

from celery_guard.contract.contract import Effective
from celery_guard.errors import Interruption, JobFailed, LeaseLost, PayloadError, StoreError
from celery_guard.flow.context import RunningJob
from celery_guard.flow.enqueue import Draft, seal
from celery_guard.flow.run import Again, Dead, Delivery, Done, Ending, HandBack, Nothing, Stale, Unheard, Withdrawn
from celery_guard.job.envelope import HEADER, Envelope, open_header
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
from celery_guard.job.row import NewJob, Payload, StoredResult
from celery_guard.job.state import Reason, State

from .adopt import adopt
from .attempt import Attempt, collecting, current_attempt
from .capture import decode
from .declared import with_limits_of_call
from .limits import soft_limit_allowed, soft_limit_deferred
from .result import decode_result, encode_result
from .signals import job_dead

if TYPE_CHECKING:
    from .runtime import Runtime

__all__ = ["perform"]

logger = logging.getLogger("celery_guard.run")

#: What billiard's handler of SIGTERM ends a child with.
_ENDED_BY_SIGTERM = -(256 - 15)


def perform(runtime: Runtime, task: Any, inner: Callable[..., Any], args: Any, kwargs: Any) -> Any:
    """Run one delivery of ``task``; ``inner`` is its body. Returns or raises what the tracer is to make of it."""
    request = task.request
    contract = runtime.contract_of(task)
    assert contract is not None
    contract = with_limits_of_call(contract, request.timelimit)
    keeps_results = not isinstance(task.backend, DisabledBackend)
    waits = bool(request.chord) or (keeps_results and not request.ignore_result)
    delivery = Delivery(
        id=request.id,
        task=task.name,
        contract=contract,
        worker=str(request.hostname),
        tells_success=waits,
        tells_failure=(
            waits
            or bool(request.errbacks)
            or bool(request.chain)
            or bool(task.store_errors_even_if_ignored)
            or task.hears_of_death()
        ),
    )
    made = _Made(runtime, task, contract, inner, args, kwargs)
    with soft_limit_deferred():
        try:
            ending = runtime.runner.run(delivery, made)
            if isinstance(ending, Unheard):
                adopt(runtime, task, made.envelope)
                ending = runtime.runner.run(delivery, made)
        except StoreError as error:
            # the row says nothing about this attempt's end, so it will be brought back; the message need not be lost either
            logger.error("job %s: the store could not be reached, the job stays unfinished: %s", request.id, error)
            raise Reject(error, requeue=True) from error
    return made.speak(ending)


class _Made:
    """One delivery on Celery's side."""

    def __init__(
        self, runtime: Runtime, task: Any, contract: Effective, inner: Callable[..., Any], args: Any, kwargs: Any
    ) -> None:
        self._runtime = runtime
        self._task = task
        self._contract = contract
        self._inner = inner
        self._call = args, kwargs
        self._request = task.request
        found = open_header((self._request.headers or {}).get(HEADER))
        self.envelope = found if isinstance(found, Envelope) else None
        self._value: Any = None
        self._ignored_by_body = False
        #: What ends this process, whatever becomes of the job.
        self._process_ends: BaseException | None = None

    # -- the body ---------------------------------------------------------------------------------------------------

    def given(self, job: RunningJob, result: StoredResult | None) -> Outcome:
        """A duplicate inside a canvas: what hangs on it goes on with the value of the job that holds its key."""
        self._value = decode_result(result)
        return self._returned()

    def run(self, job: RunningJob) -> Outcome:
        """Run the body, and say in the guard's words how it came back."""
        attempt = Attempt(self._request, job)
        # a late copy of the first message says 0
        self._request.retries = job.retries
        if self.envelope is not None:
            self._runtime.skew.compare(str(self._request.origin), self.envelope.created, job.created_instant)
        token = current_attempt.set(attempt)
        try:
            if self.envelope is not None and self.envelope.generation != job.generation and not self._read_again(job):
                moved = JobFailed(f"Job {job.id} goes on with another message than the one that arrived here.")
                return Interrupted(moved, by_shutdown=True)
            return self._outcome(attempt)
        finally:
            current_attempt.reset(token)

    def _read_again(self, job: RunningJob) -> bool:
        """A late copy of an earlier message woke this job up: what counts is the message that is stored.

        False: that one is for another task (the job was replaced), and goes to whoever consumes its queue.
        """
        payload = self._runtime.store.payload(job.id, job.generation)
        headers = {} if payload is None else json.loads(payload.headers)
        if payload is None or headers["task"] != self._task.name:
            return False
        args, kwargs, embed = decode(payload.body, json.loads(payload.delivery), headers)
        self._call = args, kwargs
        self._request.update({**(embed or {}), "args": args, "kwargs": kwargs})
        return True

    def _outcome(self, attempt: Attempt) -> Outcome:
        args, kwargs = self._call
        returned = False
        try:
            with soft_limit_allowed():
                self._mark_started()
                self._value = self._inner(*args, **kwargs)
                returned = True
        except (SoftTimeLimitExceeded, CelerySoftTimeLimit) as error:
            if not returned:
                return Failed(error)
        except Interruption as error:
            return Stopped(error)
        except Retry as asked:
            return self._retry_asked(attempt, asked)
        except Ignore:
            return self._ignored(attempt)
        except Reject as error:
            return Rejected(error, bool(error.requeue))
        except SystemExit as error:
            if error.code != _ENDED_BY_SIGTERM:
                return Interrupted(error, by_shutdown=False)
            return self._ended_by_the_pool(attempt.job, error)
        except (WorkerShutdown, WorkerTerminate) as error:
            self._process_ends = error
            return Interrupted(error, by_shutdown=True)
        except (KeyboardInterrupt, GeneratorExit) as error:
            return Interrupted(error, by_shutdown=False)
        except BaseException as error:  # noqa: BLE001 - every way out of a body is an outcome; settle records it
            if attempt.kept is not None:
                return self._retry_asked(attempt, Retry(exc=error if isinstance(error, Exception) else None))
            return Failed(error, final=Reason.EXHAUSTED if attempt.exhausted else None)
        if attempt.kept is not None:
            return self._retry_asked(attempt, None)
        return self._returned()

    def _ended_by_the_pool(self, job: RunningJob, error: SystemExit) -> Outcome:
        """The pool ends its process with SIGTERM, because of the hard limit or because the worker goes down, and does not say which."""
        self._process_ends = error
        timing = self._contract.timing
        if timing.near_limit is None or job.elapsed < timing.near_limit:
            return Interrupted(error, by_shutdown=True)
        over = TimeoutError(f"time limit: the attempt was ended after {job.elapsed}, its limit is {timing.attempt}")
        return OutOfTime(over.with_traceback(error.__traceback__))

    def _returned(self) -> Outcome:
        needed = not self._request.ignore_result or bool(self._request.chord)
        try:
            return Returned(encode_result(self._task, self._value, needed), self._follow())
        except (EncodeError, PayloadError) as error:
            return Failed(error, final=Reason.FAILED)
        except Exception as error:  # noqa: BLE001 - what follows cannot be built: the job has failed, and says why
            return Failed(error)

    def _follow(self) -> tuple[NewJob, ...]:
        """The rows of what Celery hangs on this job's success, built by Celery's own code."""
        request = self._request
        if not request.callbacks and not request.chain:
            return ()
        options = {
            "parent_id": request.id,
            "root_id": request.root_id or request.id,
            "priority": request.delivery_info.get("priority")
            if self._task.app.conf.task_inherit_parent_priority
            else None,
        }
        with collecting(by_celery=True) as collected:
            for link in request.callbacks or ():
                signature(link, app=self._task.app).apply_async((self._value,), **options)
            if request.chain:
                rest = list(request.chain)
                signature(rest.pop(), app=self._task.app).apply_async((self._value,), chain=rest, **options)
        return tuple(collected.jobs)

    def _retry_asked(self, attempt: Attempt, asked: Retry | None) -> Outcome:
        kept = attempt.kept
        error = None if asked is None else asked.exc
        if kept is None:
            assert asked is not None
            return RetryAsked(error, _seconds(asked.when), bounded=False)
        return RetryAsked(
            error,
            kept.delay if attempt.delayed else None,
            self._next_payload(kept, attempt.changed, attempt.job.generation),
            kept.queue if attempt.changed else None,
        )

    def _ignored(self, attempt: Attempt) -> Outcome:
        if attempt.kept is not None:
            return self._retry_asked(attempt, None)
        if attempt.handed_over is None:
            # a chord would wait for ever for the part of a member that says nothing
            self._ignored_by_body = not self._request.chord
            return Ignored()
        for index, job in enumerate(attempt.handed_over):
            if job.id == self._request.id:
                others = tuple(attempt.handed_over[:index] + attempt.handed_over[index + 1 :])
                return Replaced(job, others)
        return HandedOver(tuple(attempt.handed_over))

    def _next_payload(self, kept: Draft, changed: bool, generation: int) -> Payload | None:
        """The message of the next generation; None where it is this one again, byte for byte."""
        if not changed:
            return None
        envelope = self.envelope or Envelope(id=self._request.id)
        next_one = replace(envelope, generation=generation + 1)
        return seal(kept, next_one, self._runtime.settings.payload_limit)

    def _mark_started(self) -> None:
        if getattr(self._task, "guard_track_started", False) and not self._request.ignore_result:
            meta = {"pid": os.getpid(), "hostname": self._request.hostname}
            try:
                self._task.backend.store_result(self._request.id, meta, states.STARTED, request=self._request)
            except Exception as error:  # noqa: BLE001 - whatever ails the backend, the body can run
                logger.warning("job %s: Celery could not be told that it has started: %r", self._request.id, error)

    # -- what Celery hears ------------------------------------------------------------------------------------------

    def speak(self, ending: Ending) -> Any:
        """Return or raise what Celery's tracer makes the right thing of."""
        if self._process_ends is not None:
            raise self._process_ends
        request = self._request
        match ending:
            case Done(fence=fence) if self._ignored_by_body:
                self._runtime.keeper.told(request.id, fence)
                raise Ignore("ignored by the body")
            case Done(fence=fence):
                request.callbacks = request.chain = None
                request.guard_tells = fence
                return self._value
            case Again(next=next, error=error):
                if next.reason in (Reason.REPLACED, Reason.HANDED_OVER):
                    raise Ignore("replaced")
                raise Retry(exc=_exception(error), when=next.delay.total_seconds())
            case Dead(fence=fence, error=error):
                request.guard_tells = fence
                self._say_dead(error)
                raise _tellable(error)
            case Withdrawn(fence=fence):
                self._revoked(fence)
            case HandBack(settled=settled):
                request.callbacks = request.chain = None if settled.state is State.SUCCEEDED else request.chain
                return self._hand_back(settled)
            case Nothing(why=why):
                logger.info("job %s: nothing to do for this delivery, the job is %s", request.id, why)
                raise Ignore(why)
            case Stale():
                raise Ignore("this attempt lost the job")
            case Unheard():
                raise Reject(LeaseLost("the store lost the row of this message while it was adopted"), requeue=True)

    def _hand_back(self, settled: Any) -> Any:
        request = self._request
        request.guard_hands_back = True
        if settled.state is State.CANCELLED:
            self._revoked(settled.fence)
        request.guard_tells = settled.fence
        if settled.state is State.SUCCEEDED:
            return decode_result(settled.result)
        failure = settled.failure
        if failure is None:
            error = JobFailed(f"Job {settled.id} ended as {settled.reason or settled.state}.", "", str(settled.reason))
        else:
            error = JobFailed(f"{failure.type_name}: {failure.message}", failure.type_name, str(settled.reason))
        self._say_dead(error)
        raise error

    def _say_dead(self, error: BaseException) -> None:
        """The one hook and the one signal for every way to the end. The end is written: nothing that they do changes it."""
        try:
            self._task.on_dead(self._request.id, error)
        except Exception:
            logger.exception("on_dead of %s failed for job %s", self._task.name, self._request.id)
        job_dead.send(sender=self._task, job_id=self._request.id, error=error)

    def _revoked(self, fence: int) -> NoReturn:
        request = self._request
        request.guard_tells = fence
        self._task.backend.mark_as_revoked(
            request.id, "cancelled", request=request, store_result=not request.ignore_result
        )
        if request.guard_tells is not None:
            self._runtime.keeper.told(request.id, fence)
        raise Ignore("cancelled")


def _tellable(error: BaseException) -> BaseException:
    """What ends the body must not end the worker too: the failure is told, the process goes on."""
    if isinstance(error, Exception) and not isinstance(error, (Ignore, Retry)):
        return (
            error
            if not isinstance(error, Reject)
            else JobFailed(f"rejected: {error.reason}", "celery.exceptions.Reject")
        )
    kind = type(error)
    return JobFailed(f"{kind.__qualname__}: {error}", f"{kind.__module__}.{kind.__qualname__}")


def _exception(error: BaseException | None) -> Exception | None:
    return error if isinstance(error, Exception) else None


def _seconds(when: Any) -> timedelta | None:
    return timedelta(seconds=float(when)) if isinstance(when, (int, float)) else None
