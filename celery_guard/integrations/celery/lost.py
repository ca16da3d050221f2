"""The span of an attempt whose process was killed: it could not end its own, so the sweep that finds it writes one."""

from __future__ import annotations

import json
import logging
import time
from datetime import timedelta

from celery_guard.errors import StoreError
from celery_guard.job.event import Event, Recovered, Tell
from celery_guard.job.state import State
from celery_guard.watch.tracing import Lost, RunFacts

from .runtime import Runtime

__all__ = ["tell_of_lost"]

logger = logging.getLogger("celery_guard.tracing")


def tell_of_lost(runtime: Runtime) -> Tell:
    """Tell the observers; and of an attempt whose process died, which could not end its span, write the span that its row tells."""

    def tell(told: Event) -> None:
        runtime.observers.tell(told)
        if isinstance(told, Recovered) and told.crashed and runtime.tracing.on:
            _trace_lost(runtime, told)

    return tell


def _trace_lost(runtime: Runtime, told: Recovered) -> None:
    try:
        payload = runtime.store.payload(told.id)
    except StoreError as error:
        logger.debug("the span of attempt %d of job %s, which was lost, is missing: %s", told.attempt, told.id, error)
        return
    headers = json.loads(payload.headers) if payload is not None else {}
    began = time.time_ns() - _nanoseconds(told.age)
    failure = told.failure
    runtime.tracing.lost(
        Lost(
            RunFacts(told.id, told.task, told.queue, told.attempt, told.retries, told.fence),
            began, began + _nanoseconds(told.leased), str(told.reason or told.state) if told.state is State.PENDING else str(told.state),
            None if failure is None else failure.failure_class, "celery_guard.lost" if failure is None else failure.type_name,
        ),
        headers,
    )  # fmt: skip


def _nanoseconds(duration: timedelta) -> int:
    return duration // timedelta(microseconds=1) * 1000
