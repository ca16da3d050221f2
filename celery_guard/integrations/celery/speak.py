"""From a delivery's ending to what Celery's tracer understands: a return value, an exception, or silence.

What Celery would send after the body was written by settle, and is taken off the request.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, NoReturn

from celery import states
from celery.exceptions import Ignore, Reject, Retry, TaskRevokedError

from celery_guard.errors import DeadlinePassed, JobFailed, LeaseLost
from celery_guard.job.delivery import Again, Dead, Done, Ending, HandBack, Nothing, Stale, Unheard, Withdrawn
from celery_guard.job.state import Reason, State
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
    failure = settled.failure
    if failure is None:
        error = JobFailed(f"Job {settled.id} ended as {settled.reason or settled.state}.", "", str(settled.reason))
    else:
        error = JobFailed(f"{failure.type_name}: {failure.message}", failure.type_name, str(settled.reason))
    say_dead(task, error)
    if settled.reason is Reason.EXPIRED and failure is not None and failure.type_name == _EXPIRED:
        _revoked(task, request, settled.fence, "expired")
    raise error


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
