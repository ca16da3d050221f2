"""From a delivery's ending to what Celery's tracer understands: a return value, an exception, or silence.

What Celery would send after the body was written by settle, and is taken off the request.
"""

from __future__ import annotations

import logging
from functools import partial
from typing import TYPE_CHECKING, Any, NoReturn

from celery import states
from celery.backends.base import DisabledBackend
from celery.exceptions import Ignore, Reject, Retry, TaskRevokedError

from celery_guard.errors import DeadlinePassed, JobFailed, LeaseLost
from celery_guard.job.delivery import Again, Dead, Done, Ending, HandBack, Nothing, Stale, Unheard, Withdrawn
from celery_guard.job.row import StoredFailure
from celery_guard.job.state import ENDED, Reason, State
from celery_guard.job.verdict import Settled

from .body import CeleryBody
from .result import decode_result
from .signals import job_dead

if TYPE_CHECKING:
    from .runtime import Runtime

__all__ = ["say_dead", "speak", "tellable"]

logger = logging.getLogger("celery_guard.run")

#: The body was not repeated: it goes on as something else, or was not called yet.
_IN_SILENCE = (Reason.REPLACED, Reason.HANDED_OVER, Reason.HELD_VERSION, Reason.HELD_ENCRYPTION)


#: The failure of a job that ended because its deadline was over, as it is stored.
_EXPIRED = f"{DeadlinePassed.__module__}.{DeadlinePassed.__qualname__}"


def speak(runtime: Runtime, task: Any, request: Any, body: CeleryBody, ending: Ending) -> Any:
    """Return or raise what Celery's tracer makes the right thing of."""
    if body.process_ends is not None:
        raise body.process_ends
    match ending:
        case Done(fence=fence, told=told) if body.ignored:
            if not told:
                runtime.keeper.told(request.id, fence)
            raise Ignore("ignored by the body")
        case Done(fence=fence, told=told):
            request.callbacks = request.chain = None
            request.guard_tells = None if told else fence
            return body.value
        case Again(next=next, error=error):
            if next.reason in _IN_SILENCE:
                raise Ignore(str(next.reason))
            if not isinstance(task.backend, DisabledBackend):
                request.guard_goes_on = partial(_end_of, runtime)
            raise Retry(exc=_exception(error), when=next.delay.total_seconds())
        case Dead(fence=fence, next=next, error=DeadlinePassed() as error) if next.reason is Reason.EXPIRED:
            say_dead(task, error)
            _revoked(task, request, fence, "expired")
        case Dead(fence=fence, error=error):
            request.guard_tells = fence
            say_dead(task, error)
            raise tellable(error)
        case Withdrawn(fence=fence):
            _revoked(task, request, fence, "cancelled")
        case HandBack(settled=settled):
            request.callbacks = request.chain = None if settled.state is State.SUCCEEDED else request.chain
            return _hand_back(task, request, settled)
        case Nothing(why=why):
            raise Ignore(why)
        case Stale():
            raise Ignore("this attempt lost the job")
        case Unheard():
            raise Reject(LeaseLost("the store lost the row of this message while it was adopted"), requeue=True)


def _hand_back(task: Any, request: Any, settled: Settled) -> Any:
    request.guard_hands_back = True
    if settled.state is State.CANCELLED:
        _revoked(task, request, settled.fence, "cancelled")
    request.guard_tells = settled.fence
    if settled.state is State.SUCCEEDED:
        return decode_result(settled.result)
    error = _failed(settled.id, settled.state, settled.reason, settled.failure)
    say_dead(task, error)
    if _is_expired(settled.reason, settled.failure):
        _revoked(task, request, settled.fence, "expired")
    raise error


def _failed(id: str, state: State, reason: Reason | None, failure: StoredFailure | None) -> JobFailed:
    if failure is None:
        return JobFailed(f"Job {id} ended as {reason or state}.", "", str(reason))
    return JobFailed(f"{failure.type_name}: {failure.message}", failure.type_name, str(reason))


def _is_expired(reason: Reason | None, failure: StoredFailure | None) -> bool:
    return reason is Reason.EXPIRED and failure is not None and failure.type_name == _EXPIRED


def _end_of(runtime: Runtime, id: str) -> tuple[str, Any] | None:
    """How a job has ended, as Celery's state and what it stores with it; None where it goes on, or has said nothing to Celery.

    Raises ``StoreError``, and what reading damaged values, or those under an unknown key, raises.
    """
    found = runtime.store.outcome(id)
    job = runtime.store.job(id) if found is not None and found[0] in ENDED else None
    if found is None or job is None or job.reason is Reason.IGNORED:
        return None
    state, result, failure = found
    if state is State.SUCCEEDED:
        return states.SUCCESS, decode_result(runtime.encryption.decrypt_result(id, result))
    failure = runtime.encryption.decrypt_failure(id, failure)
    if state is State.CANCELLED or _is_expired(job.reason, failure):
        return states.REVOKED, TaskRevokedError("cancelled" if state is State.CANCELLED else "expired")
    return states.FAILURE, _failed(id, state, job.reason, failure)


def say_dead(task: Any, error: BaseException) -> None:
    """The one hook and the one signal for every way to the end. The end is written: nothing that they do changes it."""
    try:
        task.on_dead(task.request.id, error)
    except Exception:
        logger.exception("on_dead of %s failed for job %s", task.name, task.request.id)
    job_dead.send(sender=task, job_id=task.request.id, error=error)


def _revoked(task: Any, request: Any, fence: int, why: str) -> NoReturn:
    request.guard_tells = fence
    stored = not request.ignore_result
    if why == "expired":
        # it is dead as well: its errbacks are called, and those who wait for the rest of its chain hear of it
        task.backend.mark_as_failure(
            request.id, TaskRevokedError(why), request=request, store_result=stored, state=states.REVOKED
        )
    else:
        task.backend.mark_as_revoked(request.id, why, request=request, store_result=stored)
    raise Ignore(why)


def tellable(error: BaseException) -> BaseException:
    """What ends the body must not end the worker too: the failure is told, the process goes on."""
    if isinstance(error, Exception) and not isinstance(error, (Ignore, Retry)):
        if not isinstance(error, Reject):
            return error
        failed = JobFailed(f"rejected: {error.reason}", "celery.exceptions.Reject")
        failed.__cause__ = error
        return failed
    kind = type(error)
    return JobFailed(f"{kind.__qualname__}: {error}", f"{kind.__module__}.{kind.__qualname__}")


def _exception(error: BaseException | None) -> Exception | None:
    return error if isinstance(error, Exception) else None
