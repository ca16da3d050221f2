"""The app with a tracer provider that is set up in the parent, and a batch processor that by itself would export nothing in time."""

from __future__ import annotations

import os
import threading
from typing import Any

from opentelemetry import _logs, trace
from opentelemetry.exporter.otlp.proto.http._log_exporter import OTLPLogExporter
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk._logs import LoggerProvider
from opentelemetry.sdk._logs.export import BatchLogRecordProcessor
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult

from celery_guard import GuardedTask

from .app import add, app, charge, die_once, fails, flaky, guard, mark, note, task

__all__ = ["add", "app", "charge", "die_once", "fails", "flaky", "guard", "nests", "note", "plain"]

_LATE = 3_600_000


class Hangs(SpanExporter):
    """A collector that takes a connection and never answers."""

    def export(self, spans: Any) -> SpanExportResult:
        threading.Event().wait()
        return SpanExportResult.FAILURE


class Raises(SpanExporter):
    def export(self, spans: Any) -> SpanExportResult:
        raise RuntimeError("the exporter is broken")


class RaisesAtOnce(BatchSpanProcessor):
    def on_end(self, span: ReadableSpan) -> None:
        raise RuntimeError("the processor is broken")


def _exporter(where: str) -> SpanExporter:
    if where in ("hangs", "raises"):
        return Hangs() if where == "hangs" else Raises()
    return OTLPSpanExporter(endpoint=f"{where}/v1/traces")


def trace_with(where: str) -> None:
    """``where``: the collector's URL, or what is wrong with it."""
    kind = RaisesAtOnce if where == "processor" else BatchSpanProcessor
    # a batch is full with its first span where what happens then is the point
    size = 1 if where in ("hangs", "raises") else 512
    provider = TracerProvider()
    provider.add_span_processor(
        kind(
            _exporter("hangs" if where == "processor" else where),
            schedule_delay_millis=_LATE,
            max_export_batch_size=size,
        )
    )
    trace.set_tracer_provider(provider)
    if where.startswith("http"):
        logs = LoggerProvider()
        logs.add_log_record_processor(
            BatchLogRecordProcessor(OTLPLogExporter(endpoint=f"{where}/v1/logs"), schedule_delay_millis=_LATE)
        )
        _logs.set_logger_provider(logs)


if "APP_OTLP" in os.environ:
    trace_with(os.environ["APP_OTLP"])

if "APP_INSTRUMENTED" in os.environ:
    from celery.signals import worker_process_init
    from opentelemetry.instrumentation.celery import CeleryInstrumentor

    instrument = CeleryInstrumentor().instrument  # type: ignore[no-untyped-call]
    if os.environ["APP_INSTRUMENTED"] == "child":
        worker_process_init.connect(lambda **_: instrument(), weak=False)
    else:
        instrument()


@task(base=GuardedTask, bind=True)
def nests(self: Any) -> None:
    with trace.get_tracer("body").start_as_current_span("query"):
        mark("nests", self)
    add.delay(1, 2)


@task()
def plain() -> None:
    mark("app_traced.plain")
