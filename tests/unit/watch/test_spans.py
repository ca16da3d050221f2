"""Spans of one process: at enqueue, at publication, and around an attempt. Eager calls take the journey of a delivery."""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from celery import Celery
from opentelemetry import baggage, context, trace
from opentelemetry.sdk.trace import ReadableSpan, Span, SpanProcessor, TracerProvider
from opentelemetry.trace import SpanContext, SpanKind, StatusCode

from celery_guard import Contract, GuardedTask, KeyConflict, Retry
from celery_guard.errors import StoreUnavailableError
from celery_guard.flow.relay import Published
from celery_guard.integrations.celery.relay import make_relay
from celery_guard.integrations.celery.runtime import runtime_of
from celery_guard.integrations.celery.traced import TracedPublisher
from celery_guard.job.state import State
from celery_guard.testing.conformance.moves import claim, eventually, found
from celery_guard.watch.tracing import open_tracing

from .conftest import Spans, use

SECRET = "4111-1111"


@pytest.fixture
def app(make_app: Callable[..., Celery]) -> Celery:
    return make_app()


@pytest.fixture
def eager(make_app: Callable[..., Celery]) -> Celery:
    return make_app(task_always_eager=True, result_backend="cache+memory://")


def adder(app: Celery, **contract: Any) -> Any:
    @app.task(base=GuardedTask, bind=True, name="add", shared=False, contract=Contract(**contract))
    def add(self: Any, x: Any, y: Any = 2) -> Any:
        return x

    return add


def of(span: ReadableSpan) -> dict[str, Any]:
    return dict(span.attributes or {})


def place(found: SpanContext | None) -> tuple[int, int]:
    """(trace id, span id)."""
    assert found is not None
    return found.trace_id, found.span_id


def place_of(span: ReadableSpan) -> tuple[int, int]:
    return place(span.get_span_context())


def test_a_send_has_one_span_whose_context_is_stored_with_the_job(app: Celery, traced: Spans) -> None:
    with trace.get_tracer("web").start_as_current_span("request"):
        sent = adder(app, key="x").delay(SECRET)
    span = traced.one("enqueue add")
    headers = json.loads(app.guard.store.payload(sent.id, 0).headers)
    trace_id, span_id = place_of(span)
    assert headers["traceparent"].startswith(f"00-{trace_id:032x}-{span_id:016x}-")
    assert place(span.parent) == place_of(traced.one("request"))
    assert span.kind is SpanKind.PRODUCER
    assert of(span) == {
        "messaging.system": "celery",
        "messaging.operation.name": "enqueue",
        "messaging.operation.type": "create",
        "messaging.message.id": sent.id,
        "messaging.destination.name": "celery",
        "celery.task_name": "add",
    }


def test_without_a_tracer_provider_the_callers_context_travels_all_the_same(app: Celery) -> None:
    remote = trace.NonRecordingSpan(SpanContext(7, 9, is_remote=True, trace_flags=trace.TraceFlags(1)))
    token = context.attach(trace.set_span_in_context(remote))
    try:
        sent = adder(app).delay(1)
    finally:
        context.detach(token)
    headers = json.loads(app.guard.store.payload(sent.id, 0).headers)
    assert headers["traceparent"] == f"00-{7:032x}-{9:016x}-01"


def test_where_there_is_no_context_to_pass_on_no_propagator_is_asked(
    app: Celery, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[Any] = []
    monkeypatch.setattr("opentelemetry.propagate.inject", asked.append)
    adder(app).delay(1)
    assert asked == []


def test_baggage_is_stored_with_the_job(app: Celery, traced: Spans) -> None:
    token = context.attach(baggage.set_baggage("region", "north"))
    try:
        sent = adder(app).delay(1)
    finally:
        context.detach(token)
    assert json.loads(app.guard.store.payload(sent.id, 0).headers)["baggage"] == "region=north"


def test_without_a_tracer_provider_nothing_is_stored_and_nothing_fails(app: Celery) -> None:
    sent = adder(app).delay(1)
    assert "traceparent" not in json.loads(app.guard.store.payload(sent.id, 0).headers)


def test_a_duplicate_is_an_event_of_the_second_sends_span(app: Celery, traced: Spans) -> None:
    add = adder(app, key="x")
    first = add.delay(1)
    traced.clear()
    assert add.delay(1).duplicate
    [event] = traced.one("enqueue add").events
    assert (event.name, dict(event.attributes or {})) == (
        "celery_guard.duplicate",
        {"messaging.message.id": first.id},
    )


def test_a_refused_send_is_an_error_without_a_word_of_its_arguments(app: Celery, traced: Spans) -> None:
    add = adder(app, key="x")
    add.delay(SECRET)
    traced.clear()
    with pytest.raises(KeyConflict):
        add.delay(SECRET, y="other")
    span = traced.one("enqueue add")
    assert of(span)["error.type"] == "celery_guard.errors.KeyConflict"
    assert (span.status.status_code, span.status.description, span.events) == (StatusCode.ERROR, None, ())
    assert SECRET not in span.to_json()


def test_an_attempt_is_a_child_of_its_send_and_links_to_it(eager: Celery, traced: Spans) -> None:
    adder(eager).delay(SECRET)
    enqueued, run = traced.one("enqueue add"), traced.one("run add")
    assert place(run.parent) == place_of(enqueued)
    assert [place(link.context) for link in run.links] == [place_of(enqueued)]
    assert run.kind is SpanKind.CONSUMER
    found = of(run)
    assert {name: found[name] for name in found if name.startswith("celery_guard.")} == {
        "celery_guard.attempt": 1,
        "celery_guard.retries": 0,
        "celery_guard.fence": 1,
        "celery_guard.outcome": "succeeded",
    }
    assert run.status.status_code is StatusCode.UNSET
    assert SECRET not in run.to_json()


def test_what_a_body_traces_and_sends_is_inside_its_attempt(eager: Celery, traced: Spans) -> None:
    add = adder(eager)

    @eager.task(base=GuardedTask, name="outer", shared=False)
    def outer() -> None:
        with trace.get_tracer("body").start_as_current_span("query"):
            pass
        add.delay(1)

    outer.delay()
    run = place_of(traced.one("run outer"))
    assert place(traced.one("query").parent) == run
    assert place(traced.one("enqueue add").parent) == run
    assert trace.get_current_span() is trace.INVALID_SPAN


def test_each_attempt_has_an_ended_span_of_its_own_with_its_failure_class(eager: Celery, traced: Spans) -> None:
    @eager.task(base=GuardedTask, bind=True, name="flaky", shared=False, contract=Contract(retry=Retry(max_attempts=3)))
    def flaky(self: Any, card: str) -> None:
        if self.job.attempt < 3:
            raise ConnectionError(card)

    flaky.delay(SECRET)
    runs = traced.all("run flaky")
    assert [of(run)["celery_guard.attempt"] for run in runs] == [1, 2, 3]
    assert [of(run)["celery_guard.outcome"] for run in runs] == ["retry", "retry", "succeeded"]
    assert [of(run).get("celery_guard.failure_class") for run in runs] == ["transient", "transient", None]
    assert [of(run).get("error.type") for run in runs] == ["ConnectionError", "ConnectionError", None]
    assert len({place(run.parent) for run in runs}) == 1
    assert not any(SECRET in run.to_json() for run in runs)


def test_a_dead_job_ends_its_span_as_an_error(eager: Celery, traced: Spans) -> None:
    @eager.task(base=GuardedTask, name="bad", shared=False)
    def bad() -> None:
        raise ValueError(SECRET)

    bad.delay()
    run = traced.one("run bad")
    assert (of(run)["celery_guard.outcome"], of(run)["error.type"]) == ("dead", "ValueError")
    assert (run.status.status_code, run.status.description, run.events) == (StatusCode.ERROR, None, ())


def test_a_publisher_without_tracing_gives_an_attempt_a_trace_of_its_own(
    eager: Celery, traced: Spans, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("opentelemetry.propagate.inject", lambda headers: None)
    adder(eager).delay(1)
    run = traced.one("run add")
    assert (run.parent, run.links) == (None, ())


@pytest.mark.parametrize("said", ["nonsense", 7, ["00-1-1-01"], {}, ""])
def test_nonsense_in_the_headers_is_no_context(eager: Celery, traced: Spans, said: Any) -> None:
    monkeypatched = {"traceparent": said, "tracestate": said, "baggage": said}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("opentelemetry.propagate.inject", lambda headers: headers.update(monkeypatched))
        adder(eager).delay(1)
    assert traced.one("run add").parent is None


def test_an_attempt_whose_process_died_has_the_span_that_its_row_tells(app: Celery, traced: Spans) -> None:
    sent = adder(app).delay(SECRET)
    granted = claim(app.guard.store, sent.id, lease=timedelta(milliseconds=50))
    relay = make_relay(runtime_of(app))
    eventually(lambda: relay.sweep() and found(app.guard.store, sent.id).state is not State.RUNNING)
    enqueued, run = traced.one("enqueue add"), traced.one("run add")
    assert (place(run.parent), place(run.links[0].context)) == (place_of(enqueued), place_of(enqueued))
    assert (run.kind, run.status.status_code) == (SpanKind.CONSUMER, StatusCode.ERROR)
    said = of(run)
    assert (said["celery_guard.attempt"], said["celery_guard.fence"]) == (1, granted.fence)
    assert said["messaging.message.id"] == sent.id
    job = found(app.guard.store, sent.id)
    assert said["celery_guard.outcome"] == str(job.reason if job.state is State.PENDING else job.state)
    assert said["error.type"] == job.failures[-1].type_name
    assert run.start_time is not None
    assert run.end_time is not None
    assert timedelta(microseconds=(run.end_time - run.start_time) // 1000) == timedelta(milliseconds=50)
    assert SECRET not in run.to_json()


def test_a_store_that_cannot_be_asked_costs_a_lost_attempt_its_span_and_nothing_else(
    app: Celery, traced: Spans, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent = adder(app).delay(SECRET)
    claim(app.guard.store, sent.id, lease=timedelta(milliseconds=50))

    def out(*given: Any) -> None:
        raise StoreUnavailableError("away")

    monkeypatch.setattr(app.guard.store, "payload", out)
    relay = make_relay(runtime_of(app))
    eventually(lambda: relay.sweep() and found(app.guard.store, sent.id).state is not State.RUNNING)
    assert found(app.guard.store, sent.id).crashes == 1
    assert traced.all("run add") == []


def test_a_publication_is_a_child_of_its_send(app: Celery, traced: Spans) -> None:
    class Broker:
        depth = tell = None

        def publish(self, rows: Any) -> Published:
            [first, second, *_] = (row.id for row in rows)
            return Published((first,), ((second, OSError("full")),), ConnectionError())

    add = adder(app)
    for number in range(3):
        add.delay(number)
    rows = app.guard.store.take("token", 3, timedelta(seconds=5))
    TracedPublisher(Broker(), open_tracing()).publish(rows)  # type: ignore[arg-type]
    sent, refused = traced.all("publish add")
    assert {place(sent.parent), place(refused.parent)} < {place_of(span) for span in traced.all("enqueue add")}
    assert (of(sent)["messaging.operation.type"], sent.status.status_code) == ("send", StatusCode.UNSET)
    assert (of(refused)["error.type"], refused.status.status_code) == ("OSError", StatusCode.ERROR)


def test_a_retry_with_other_arguments_keeps_the_context_of_the_first_send(eager: Celery, traced: Spans) -> None:
    @eager.task(base=GuardedTask, bind=True, name="again", shared=False, max_retries=3)
    def again(self: Any, left: int) -> None:
        if left:
            self.retry((left - 1,), countdown=0)

    again.delay(2)
    runs = traced.all("run again")
    assert len(runs) == 3
    assert {place(run.parent) for run in runs} == {place_of(traced.one("enqueue again"))}


class Broken(SpanProcessor):
    def on_start(self, span: Span, parent_context: Any = None) -> None:
        raise RuntimeError("on_start")

    def on_end(self, span: ReadableSpan) -> None:
        raise RuntimeError("on_end")

    def force_flush(self, timeout_millis: int = 30000) -> bool:
        raise RuntimeError("force_flush")


def test_obs_2_broken_telemetry_fails_no_job_and_is_said_once(
    eager: Celery, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(Broken())
    use(monkeypatch, provider)
    add = adder(eager)
    with caplog.at_level(logging.WARNING, "celery_guard.tracing"):
        assert [add.delay(number).get() for number in range(3)] == [0, 1, 2]
        open_tracing().flush(1)
    said = [record.getMessage() for record in caplog.records if record.name == "celery_guard.tracing"]
    assert len(said) == len(set(said)) == 3


def test_obs_2_a_propagator_that_raises_fails_no_job(
    eager: Celery, traced: Spans, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: Any, **__: Any) -> Any:
        raise RuntimeError("propagator")

    monkeypatch.setattr("opentelemetry.propagate.inject", broken)
    monkeypatch.setattr("opentelemetry.propagate.extract", broken)
    assert adder(eager).delay(5).get() == 5


def test_obs_2_a_flush_that_hangs_is_left_behind(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    released = threading.Event()

    class Hangs(SpanProcessor):
        def force_flush(self, timeout_millis: int = 30000) -> bool:
            return released.wait(60)

    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(Hangs())
    use(monkeypatch, provider)
    open_tracing().flush(0.05)
    assert not released.is_set()
    released.set()
    assert "not exported within 0.05 s" in caplog.text
