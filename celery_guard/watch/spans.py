"""Spans by OpenTelemetry, through its API: which SDK, sampler, processor and exporter there are is the application's affair.

Names and attributes follow the semantic conventions for messaging, with ``celery`` as the system.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, MutableMapping
from contextlib import contextmanager, nullcontext
from typing import Any, TypeVar

from opentelemetry import _logs, context, propagate, trace
from opentelemetry.propagators.textmap import Getter
from opentelemetry.trace import Link, Span, SpanContext, SpanKind, StatusCode

from celery_guard.job.delivery import Again, Dead, Done, Ending, HandBack, Nothing, Stale, Unheard, Withdrawn
from celery_guard.job.text import type_name_of
from celery_guard.job.verdict import Duplicate, Enqueued

from .tracing import NO_ENQUEUE, NO_RUN, EnqueueSpan, Lost, RunFacts, RunSpan, Sent

__all__ = ["Spans", "traced_ids"]

logger = logging.getLogger("celery_guard.tracing")

_NAME = "celery_guard"
_DUPLICATE = "celery_guard.duplicate"
_T = TypeVar("_T")
#: Complaints about telemetry that this process has made already.
_complained: set[str] = set()


class Spans:
    """Spans of one process, by whatever tracer provider it has when they begin."""

    def enqueuing(self, task: str) -> Any:
        """See :class:`~celery_guard.watch.tracing.Tracing`."""
        if self.on:
            return _enqueuing(task)
        # without an SDK there are no spans, but the caller's context travels, where there is one
        return nullcontext(_PASSED_ON if context.get_current() else NO_ENQUEUE)

    def sent(self, messages: Iterable[Sent], since: int) -> None:
        """See :class:`~celery_guard.watch.tracing.Tracing`."""
        if not self.on:
            return
        for message in messages:
            _quietly("a publication's span", _publication, message, since)

    def run(self, facts: RunFacts, headers: Mapping[str, Any]) -> RunSpan:
        """See :class:`~celery_guard.watch.tracing.Tracing`."""
        return _quietly("an attempt's span", _begin if self.on else _passed_on, facts, headers) or NO_RUN

    def not_run(self, facts: RunFacts, headers: Mapping[str, Any], why: str) -> RunSpan:
        """See :class:`~celery_guard.watch.tracing.Tracing`. An event is a log record of OpenTelemetry's with a name."""
        return _quietly("a duplicate's event", _event, facts, headers, why) or NO_RUN

    @property
    def on(self) -> bool:
        """See :class:`~celery_guard.watch.tracing.Tracing`."""
        return not isinstance(trace.get_tracer_provider(), trace.ProxyTracerProvider)

    def lost(self, attempt: Lost, headers: Mapping[str, Any]) -> None:
        """See :class:`~celery_guard.watch.tracing.Tracing`."""
        _quietly("a lost attempt's span", _lost, attempt, headers)

    def flush(self, within: float) -> None:
        """See :class:`~celery_guard.watch.tracing.Tracing`. An exporter that hangs is left behind in its thread."""
        for provider in (trace.get_tracer_provider(), _logs.get_logger_provider()):
            flush = getattr(provider, "force_flush", None)
            if flush is not None:
                within = _flush(flush, within)


def traced_ids() -> tuple[str, str] | None:
    """(trace id, span id) of the span that is current here, in hex."""
    return _ids(trace.get_current_span().get_span_context())


def _ids(found: SpanContext) -> tuple[str, str] | None:
    return (trace.format_trace_id(found.trace_id), trace.format_span_id(found.span_id)) if found.is_valid else None


def _quietly(what: str, act: Callable[..., _T], *given: Any) -> _T | None:
    try:
        return act(*given)
    except Exception as error:  # noqa: BLE001 - whatever ails telemetry, the job goes on; said once in a process
        _complain(what, error)
        return None


def _complain(what: str, error: BaseException) -> None:
    level = logging.DEBUG if what in _complained else logging.WARNING
    _complained.add(what)
    logger.log(level, "%s is missing, OpenTelemetry failed: %s: %s", what, type(error).__name__, error)


def _tracer() -> trace.Tracer:
    return trace.get_tracer(_NAME)


class _Headers(Getter[Mapping[str, Any]]):
    """A message's headers as a propagator reads them. Anybody can have written them."""

    def get(self, carrier: Mapping[str, Any], key: str) -> list[str] | None:
        value = carrier.get(key)
        return [value] if isinstance(value, str) else None

    def keys(self, carrier: Mapping[str, Any]) -> list[str]:
        return [name for name, value in carrier.items() if isinstance(value, str)]


_HEADERS = _Headers()


def _brought(headers: Mapping[str, Any]) -> context.Context:
    """The context that a message brings, without anything of this process's own."""
    return propagate.extract(headers, context.Context(), _HEADERS)


def _said(headers: Mapping[str, Any]) -> tuple[context.Context, list[Link]]:
    """The context that a message brings, and a link to it, where it names a span."""
    brought = _brought(headers)
    found = trace.get_current_span(brought).get_span_context()
    return brought, [Link(found)] if found.is_valid else []


def _attributes(operation: str, kind: str, id: str, task: str, queue: str | None, **more: Any) -> dict[str, Any]:
    fields = {
        "messaging.system": "celery",
        "messaging.operation.name": operation,
        "messaging.operation.type": kind,
        "messaging.message.id": id,
        "messaging.destination.name": queue,
        "celery.task_name": task,
        **{f"celery_guard.{name}": value for name, value in more.items()},
    }
    return {name: value for name, value in fields.items() if value is not None}


@contextmanager
def _enqueuing(task: str) -> Iterator[EnqueueSpan]:
    span = _quietly("an enqueue span", _start_enqueue, task)
    if span is None:
        yield EnqueueSpan()
        return
    made = _Enqueue(span, task)
    token = context.attach(trace.set_span_in_context(span))
    try:
        yield made
    except BaseException as error:
        _quietly("an enqueue span's error", _fail, span, type_name_of(error))
        raise
    finally:
        context.detach(token)
        _quietly("an enqueue span's end", span.end)


def _start_enqueue(task: str) -> Span:
    return _tracer().start_span(f"enqueue {task}", kind=SpanKind.PRODUCER)


class _Enqueue(EnqueueSpan):
    def __init__(self, span: Span, task: str) -> None:
        self._span = span
        self._task = task

    def built(self, id: str, queue: str, headers: MutableMapping[str, Any]) -> None:
        _quietly("an enqueue span's context", self._built, id, queue, headers)

    def answered(self, answer: Enqueued) -> None:
        if isinstance(answer, Duplicate):
            _quietly("a duplicate's event", self._span.add_event, _DUPLICATE, {"messaging.message.id": answer.holder})

    def _built(self, id: str, queue: str, headers: MutableMapping[str, Any]) -> None:
        if self._span.is_recording():
            self._span.set_attributes(_attributes("enqueue", "create", id, self._task, queue))
        propagate.inject(headers)


class _PassedOn(EnqueueSpan):
    """No span: the message is given the context that its sender is in."""

    def built(self, id: str, queue: str, headers: MutableMapping[str, Any]) -> None:
        _quietly("the caller's context", propagate.inject, headers)


_PASSED_ON = _PassedOn()


def _publication(message: Sent, since: int) -> None:
    brought, links = _said(message.headers)
    if not links:
        # nobody traces the job: a publication alone is no news
        return
    span = _tracer().start_span(
        f"publish {message.task}", brought, SpanKind.PRODUCER, start_time=since,
        attributes=_attributes("publish", "send", message.id, message.task, message.queue),
    )  # fmt: skip
    if message.error is not None:
        _fail(span, type_name_of(message.error))
    span.end()


def _begin(facts: RunFacts, headers: Mapping[str, Any]) -> _Run:
    brought, links = _said(headers)
    attributes = _of_run(facts)
    span = _tracer().start_span(f"run {facts.task}", brought, SpanKind.CONSUMER, attributes, links)
    return _Run(span, context.attach(trace.set_span_in_context(span, brought)))


def _passed_on(facts: RunFacts, headers: Mapping[str, Any]) -> RunSpan:
    """No span without an SDK, but the job's context goes on to what the body sends, where its message brings one."""
    brought = _brought(headers)
    return _Inside(brought) if brought else NO_RUN


def _of_run(facts: RunFacts) -> dict[str, Any]:
    attributes = _attributes(
        "run", "process", facts.id, facts.task, facts.queue, attempt=facts.attempt, retries=facts.retries,
        fence=facts.fence, tenant=facts.tenant,
    )  # fmt: skip
    if facts.correlation_id is not None:
        attributes["messaging.message.conversation_id"] = facts.correlation_id
    return attributes


def _lost(attempt: Lost, headers: Mapping[str, Any]) -> None:
    brought, links = _said(headers)
    attributes = _of_run(attempt.facts)
    span = _tracer().start_span(
        f"run {attempt.facts.task}", brought, SpanKind.CONSUMER, attributes, links, start_time=attempt.began
    )
    _outcome(span, attempt.outcome, attempt.failure_class, attempt.error)
    span.end(attempt.ended)


class _Run(RunSpan):
    def __init__(self, span: Span, token: Any) -> None:
        self._span = span
        self._token = token
        self.ids = _ids(span.get_span_context())

    def end(self, ending: Ending | None) -> None:
        context.detach(self._token)
        _quietly("an attempt's outcome", _tell, self._span, ending)
        _quietly("an attempt's end", self._span.end)


def _tell(span: Span, ending: Ending | None) -> None:
    _outcome(span, *outcome_of(ending))


def _outcome(span: Span, outcome: str, failure_class: str | None, error: str | None) -> None:
    span.set_attribute("celery_guard.outcome", outcome)
    if failure_class is not None:
        span.set_attribute("celery_guard.failure_class", failure_class)
    if error is not None:
        _fail(span, error)


def outcome_of(ending: Ending | None) -> tuple[str, str | None, str | None]:
    """(outcome, failure class, type of the error) of an attempt; no error where it has not failed."""
    match ending:
        case Done():
            return "succeeded", None, None
        case Again(next=next, error=error) | Dead(next=next, error=error):
            found = None if next.failure_class is None else next.failure_class.value
            outcome = next.state.value if isinstance(ending, Dead) else str(next.reason)
            failed = error is not None and (found is not None or isinstance(ending, Dead))
            return outcome, found, type_name_of(error) if error is not None and failed else None
        case Withdrawn():
            return "cancelled", None, None
        case Stale() | HandBack() | Nothing() | Unheard():
            return "stale", None, "celery_guard.errors.LeaseLost"
        case None:
            return "unsettled", None, "celery_guard.errors.StoreError"


def _fail(span: Span, type_name: str) -> None:
    """By its type alone: what an exception says may be an argument."""
    if span.is_recording():
        span.set_attribute("error.type", type_name)
        span.set_status(StatusCode.ERROR)


class _Inside(RunSpan):
    """No span: the job's own context, as its message brought it."""

    def __init__(self, brought: context.Context) -> None:
        self._token = context.attach(brought)
        self.ids = _ids(trace.get_current_span(brought).get_span_context())

    def end(self, ending: Ending | None) -> None:
        context.detach(self._token)


def _event(facts: RunFacts, headers: Mapping[str, Any], why: str) -> RunSpan:
    brought = _brought(headers)
    _logs.get_logger(_NAME).emit(
        _logs.LogRecord(
            timestamp=time.time_ns(), context=brought, event_name=_DUPLICATE, severity_number=_logs.SeverityNumber.INFO,
            attributes=_attributes("run", "process", facts.id, facts.task, facts.queue, verdict=why),
        )
    )  # fmt: skip
    return _Inside(brought)


def _flush(flush: Callable[[], Any], within: float) -> float:
    """What is left of the time. A thread of its own: no exporter's ``force_flush`` can be trusted to look at the clock."""
    begun = time.monotonic()
    done = threading.Thread(target=lambda: _quietly("a flush", flush), name="celery-guard-flush", daemon=True)
    done.start()
    done.join(within)
    if done.is_alive():
        logger.warning("the last spans of this process are lost: they were not exported within %g s", within)
    return max(0.0, within - (time.monotonic() - begun))
