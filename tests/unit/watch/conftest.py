"""Spans kept in this process, and an app whose jobs run here."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from celery import Celery
from click.testing import CliRunner, Result
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from celery_guard import Contract, Guard, GuardedTask
from celery_guard.operate.cli.main import guard as command_line
from celery_guard.watch import spans


class Spans:
    """The ended spans of a test, by name."""

    def __init__(self) -> None:
        self._exporter = InMemorySpanExporter()
        self.provider = TracerProvider(shutdown_on_exit=False)
        self.provider.add_span_processor(SimpleSpanProcessor(self._exporter))

    def all(self, name: str | None = None) -> list[ReadableSpan]:
        return [span for span in self._exporter.get_finished_spans() if name is None or span.name == name]

    def one(self, name: str) -> ReadableSpan:
        [span] = self.all(name)
        return span

    def clear(self) -> None:
        self._exporter.clear()


@pytest.fixture
def traced(monkeypatch: pytest.MonkeyPatch) -> Iterator[Spans]:
    """This process has a tracer provider, whose spans are kept."""
    made = Spans()
    use(monkeypatch, made.provider)
    yield made
    made.provider.shutdown()


def use(monkeypatch: pytest.MonkeyPatch, provider: Any) -> None:
    """Have this process trace with ``provider`` until the test ends: OpenTelemetry itself can be told only once."""
    monkeypatch.setattr(trace, "_TRACER_PROVIDER", provider)
    monkeypatch.setattr(spans, "_complained", set())


@pytest.fixture
def app(tmp_path: Path) -> Iterator[Celery]:
    app = Celery("shop", broker="memory://", set_as_current=False)
    made = Guard(app, store=f"sqlite:///{tmp_path / 'guard.db'}")
    made.store.upgrade()

    def body() -> None: ...

    for name, owner in (("shop.charge", "payments"), ("shop.ship", None)):
        app.task(body, name=name, base=GuardedTask, shared=False, contract=Contract(owner=owner))
    yield app
    made.store.close()


@pytest.fixture
def run(app: Celery) -> Callable[..., Result]:
    def typed(*words: str) -> Result:
        context = SimpleNamespace(app=app, no_color=True)
        return CliRunner().invoke(command_line, list(words), obj=context, catch_exceptions=False)

    return typed
