"""Beside OpenTelemetry's own instrumentation of Celery, in both orders of set-up."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from celery import Celery
from opentelemetry.instrumentation.celery import CeleryInstrumentor

from celery_guard import GuardedTask
from celery_guard.watch.instrumentor import SIGNALS

from .conftest import Spans


@pytest.fixture(autouse=True)
def as_it_was() -> Iterator[None]:
    """The instrumentation's class is whole again afterwards, and switched off."""
    plain = {name: vars(CeleryInstrumentor)[name] for name in SIGNALS.values()}
    for name, method in plain.items():
        while hasattr(method, "__wrapped__"):
            method = method.__wrapped__
        setattr(CeleryInstrumentor, name, staticmethod(method) if isinstance(plain[name], staticmethod) else method)
    yield
    instrumentor: Any = CeleryInstrumentor()  # type: ignore[no-untyped-call]
    if instrumentor.is_instrumented_by_opentelemetry:
        instrumentor.uninstrument()
    for name, method in plain.items():
        setattr(CeleryInstrumentor, name, method)


def instrument() -> None:
    CeleryInstrumentor().instrument()  # type: ignore[no-untyped-call]


@pytest.mark.parametrize("order", ["before", "after"])
def test_obs_2_a_guarded_job_has_no_second_span_of_the_instrumentation(
    make_app: Callable[..., Celery], traced: Spans, order: str
) -> None:
    if order == "before":
        instrument()
    app = make_app(task_always_eager=True)

    @app.task(base=GuardedTask, name="add", shared=False)
    def add(x: int) -> int:
        return x

    if order == "after":
        add.delay(1)
        traced.clear()
        instrument()
    add.delay(1)
    assert sorted(span.name for span in traced.all()) == ["enqueue add", "run add"]


@pytest.mark.parametrize("order", ["before", "after"])
def test_obs_2_a_plain_task_keeps_the_instrumentations_span(
    make_app: Callable[..., Celery], traced: Spans, order: str
) -> None:
    if order == "before":
        instrument()
    app = make_app(task_always_eager=True)

    @app.task(base=GuardedTask, name="add", shared=False)
    def add(x: int) -> int:
        return x

    @app.task(name="plain", shared=False)
    def plain(x: int) -> int:
        add.delay(x)
        return x

    add.delay(1)
    if order == "after":
        instrument()
    traced.clear()
    plain.delay(1)
    assert sorted(span.name for span in traced.all()) == ["enqueue add", "run add", "run/plain"]


def test_the_instrumentation_can_be_switched_off_again(make_app: Callable[..., Celery], traced: Spans) -> None:
    instrument()
    app = make_app(task_always_eager=True)

    @app.task(name="plain", shared=False)
    def plain(x: int) -> int:
        return x

    app.guard._runtime.tracing  # noqa: B018
    plain.delay(1)
    CeleryInstrumentor().uninstrument()  # type: ignore[no-untyped-call]
    plain.delay(1)
    assert [span.name for span in traced.all()] == ["run/plain"]
