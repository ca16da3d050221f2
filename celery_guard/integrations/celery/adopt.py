"""A message without a row: sent without the guard, or one whose row is gone. Somebody has accepted it, so it is adopted."""

from __future__ import annotations

import json
import logging
import time
from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from celery.exceptions import Ignore
from tenacity import Retrying, retry_if_result, stop_after_attempt, wait_fixed

from celery_guard.errors import EnqueueError
from celery_guard.flow.enqueue import enqueue
from celery_guard.job.envelope import Envelope
from celery_guard.job.refusal import explain_refusal
from celery_guard.job.row import NewJob
from celery_guard.job.verdict import Busy, Enqueued
from celery_guard.store.protocol import Store

from .attempt import collecting
from .capture import capture

if TYPE_CHECKING:
    from .runtime import Runtime

__all__ = ["adopt"]

logger = logging.getLogger("celery_guard.run")

#: How often, and after how many seconds each time, a key that an open transaction is taking is looked at again.
_LOOKS = 50
_PAUSE = 0.1


def adopt(runtime: Runtime, task: Any, envelope: Envelope | None) -> None:
    """Accept the message that ``task`` is being called with.

    A message that cannot be accepted goes to quarantine, for its publisher cannot be told: its key is taken by another payload, or by
    a transaction that stays open, its arguments do not fit; and one of the guard's that is older than rows are kept, for that may have run long ago.

    Raises why it cannot be accepted; ``Ignore`` for the old one.
    """
    request = task.request
    try:
        with collecting(by_celery=True, versions={} if envelope is None else envelope.payloads) as collected:
            task.signature_from_request(request).apply_async()
    except (EnqueueError, TypeError) as error:
        _set_aside(runtime, task, f"it cannot be accepted: {error}")
        raise
    age = _age(envelope)
    keep = runtime.settings.keep
    if age is not None and age > keep:
        reason = f"older than ended jobs are kept ({age} > {keep}), and without a row: it may have run"
        _set_aside(runtime, task, reason)
        raise Ignore("set aside")
    logger.warning("job %s: the store has no row for this message; it is adopted", request.id)
    # its message is here: published again it would be run twice by a fleet that has workers without the guard
    (job,) = collected.jobs
    answer = _accepted(runtime.store, replace(job, in_broker=runtime.settings.suspect_after))
    refusal = explain_refusal(job, answer)
    if refusal is not None:
        _set_aside(runtime, task, str(refusal))
        raise refusal


def _accepted(store: Store, job: NewJob) -> Enqueued:
    """Accept a job. While others take its key that is waited for: nobody is here to try again, and it may be this very message."""
    waits = Retrying(
        retry=retry_if_result(lambda answer: isinstance(answer, Busy)),
        wait=wait_fixed(_PAUSE),
        stop=stop_after_attempt(1 + _LOOKS),
        retry_error_callback=lambda last: last.outcome.result() if last.outcome is not None else None,
    )
    answer: Enqueued = waits(lambda: enqueue(store, [job])[0])
    return answer


def _set_aside(runtime: Runtime, task: Any, reason: str) -> None:
    request = task.signature_from_request(task.request)
    captured = capture(task.app, task.name, request.args, request.kwargs, {**request.options, "expires": None})
    number = runtime.store.quarantine(
        queue=captured.queue,
        body=captured.body,
        headers=json.dumps(captured.headers, default=repr),
        content_type=str(captured.delivery["content_type"]),
        content_encoding=str(captured.delivery["content_encoding"]),
        reason=reason[:500],
    )
    logger.error("job %s is set aside as quarantine %d: %s", task.request.id, number, reason)


def _age(envelope: Envelope | None) -> timedelta | None:
    """How long ago the guard accepted the message, by the publisher's clock; None for a message without the guard."""
    if envelope is None or envelope.created is None:
        return None
    return timedelta(seconds=time.time() - envelope.created)
