"""From Celery's call of a task to the guard's run, and from its ending back to what Celery understands.

the tracer calls the task -> perform -> Runner.run -> CeleryBody (the body) -> speak (what Celery hears)
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from celery.backends.base import DisabledBackend
from celery.exceptions import Reject

from celery_guard.errors import StoreError
from celery_guard.job.delivery import Delivery, Ending, Unheard

from .adopt import adopt
from .body import CeleryBody
from .declared import with_limits_of_call
from .limits import soft_limit_deferred
from .speak import speak

if TYPE_CHECKING:
    from .runtime import Runtime

__all__ = ["perform"]

logger = logging.getLogger("celery_guard.run")


def perform(runtime: Runtime, task: Any, request: Any, inner: Callable[..., Any], args: Any, kwargs: Any) -> Any:
    """Run one delivery of ``task``; ``inner`` is its body. Returns or raises what the tracer is to make of it."""
    contract = runtime.contract_of(task)
    assert contract is not None
    contract = with_limits_of_call(contract, request.timelimit)
    # first, for what hangs on the job may be encrypted with its arguments; where it stays so, somebody may wait
    body = CeleryBody(runtime, task, request, contract, inner, args, kwargs)
    waits = body.unopened is not None or bool(request.chord) or (not request.ignore_result and _keeps_results(task))
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
        hidden=body.hidden,
    )
    with soft_limit_deferred():
        try:
            ending = _run(runtime, delivery, body)
            if isinstance(ending, Unheard):
                adopt(runtime, task, body.envelope)
                ending = _run(runtime, delivery, body)
        except StoreError as error:
            # the row says nothing about this attempt's end, so it will be brought back; the message need not be lost either
            logger.error("job %s: the store could not be reached, the job stays unfinished: %s", request.id, error)
            raise Reject(error, requeue=True) from error
    return speak(runtime, task, request, body, ending)


def _keeps_results(task: Any) -> bool:
    return not isinstance(task.backend, DisabledBackend)


def _run(runtime: Runtime, delivery: Delivery, body: CeleryBody) -> Ending:
    if body.revoked:
        runtime.cancel(delivery.id)
    return body.travel(runtime.runner, delivery)
