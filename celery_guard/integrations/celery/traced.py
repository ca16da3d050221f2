"""Where tracing meets Celery: which sends and deliveries are the guard's, and what a relay has published."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

from celery import signals

from celery_guard.job.envelope import HEADER
from celery_guard.watch.instrumentor import SIGNALS, stand_beside
from celery_guard.watch.tracing import EnqueueSpan, Sent, Tracing, open_tracing

from .runtime import Runtime, runtime_of

if TYPE_CHECKING:
    from celery_guard.flow.relay import Published, Publisher
    from celery_guard.job.row import Outgoing

__all__ = ["TracedPublisher", "building", "open_for_celery"]

#: Whether the message that is being built here is the guard's: its spans are, too.
_ours: ContextVar[bool] = ContextVar("celery_guard_builds", default=False)


def open_for_celery() -> Tracing:
    """Tracing, with OpenTelemetry's own instrumentation of Celery kept from guarded jobs."""
    stand_beside({name: getattr(signals, name) for name in SIGNALS}, _is_ours)
    return open_tracing()


@contextmanager
def building(runtime: Runtime, name: str, *, guarded: bool, new: bool) -> Iterator[EnqueueSpan]:
    """Around the making of one message. A new job has an enqueue span; one that goes on (a retry, a replacement) keeps the one it has."""
    token = _ours.set(guarded)
    try:
        with runtime.tracing.enqueuing(name) if new else nullcontext(EnqueueSpan()) as span:
            yield span
    finally:
        _ours.reset(token)


def _is_ours(signal: str, given: Mapping[str, Any]) -> bool:
    """Whether a signal is about a job of the guard's."""
    if signal.endswith("_publish"):
        return _ours.get()
    task: Any = given.get("task") or given.get("sender")
    if not getattr(task, "guarded", False):
        return False
    from .eager import eager_run

    request = task.request
    if request.is_eager:
        return eager_run(request) is not None
    return bool((request.headers or {}).get(HEADER)) or not runtime_of(task.app).leaves(task)


class TracedPublisher:
    """A relay's publisher, with a span for each message that it has sent or that was refused."""

    def __init__(self, inner: Publisher, tracing: Tracing) -> None:
        self._inner = inner
        self._tracing = tracing
        self.depth = inner.depth
        self.tell = inner.tell

    def publish(self, rows: Sequence[Outgoing]) -> Published:
        """See :class:`~celery_guard.flow.relay.Publisher`."""
        since = time.time_ns()
        published = self._inner.publish(rows)
        self._tracing.sent(_messages(rows, published), since)
        return published


def _messages(rows: Sequence[Outgoing], published: Published) -> Iterator[Sent]:
    sent, refused = frozenset(published.sent), dict(published.refused)
    for row in rows:
        if row.payload is not None and (row.id in sent or row.id in refused):
            yield Sent(row.id, row.task, row.queue, json.loads(row.payload.headers), refused.get(row.id))
