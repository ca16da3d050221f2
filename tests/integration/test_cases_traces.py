"""OBS-2: spans of real workers, exported by OTLP to a collector in this process."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from .collector import Collector
from .fleet import Fleet, eventually

pytestmark = [pytest.mark.integration, pytest.mark.timeout(200)]

#: Sends, each in a span of its own, from a process that traces; prints "job trace".
TRACED = """
from opentelemetry import trace
tracer = trace.get_tracer("web")
def send(call):
    with tracer.start_as_current_span("request") as span:
        print(call().id, format(span.get_span_context().trace_id, "032x"))
"""


@pytest.fixture
def collector() -> Iterator[Collector]:
    made = Collector()
    yield made
    made.close()


@pytest.fixture
def traced(make_fleet: Callable[..., Fleet], collector: Collector) -> Fleet:
    """A fleet whose processes trace; not this one."""
    fleet = make_fleet("redis-postgresql", "tests.integration.app_traced")
    _ = fleet.app
    fleet.environment["APP_OTLP"] = collector.url
    return fleet


def sent(fleet: Fleet, code: str, **env: str) -> dict[str, str]:
    """The jobs that a publisher's code sends, each with the trace it was sent in."""
    lines = fleet.says(TRACED + code, **env).splitlines()
    return dict(line.split() for line in lines)


def test_obs_2_ten_jobs_in_a_child_each_have_ten_run_spans_in_the_trace_that_sent_them(
    traced: Fleet, collector: Collector
) -> None:
    jobs = sent(traced, "for n in range(10): send(lambda: m.add.delay(n, 1))")
    worker = traced.worker("prefork", 2, "--max-tasks-per-child", "1")
    traced.all_quiet()
    assert worker.terminate() == 0
    assert Counter(span.job for span in collector.named("run tests.integration.app.add")) == Counter(list(jobs))
    for job, trace in jobs.items():
        [enqueued], [run] = collector.of(job, "enqueue"), collector.of(job)
        # one, or more where a job had to wait for a child for so long that it was taken for lost
        published = collector.of(job, "publish")
        assert {span.trace for span in (enqueued, run, *published)} == {trace}
        assert {span.parent for span in (run, *published)} == {enqueued.id}
        assert run.links == (enqueued.id,)
        assert published
        assert run.attributes["celery_guard.outcome"] == "succeeded"
        assert enqueued.end <= run.start <= run.end


def test_obs_2_each_attempt_is_a_span_of_one_trace_through_retries_and_a_kill(
    traced: Fleet, collector: Collector
) -> None:
    jobs = sent(traced, "send(lambda: m.flaky.delay(2)); send(lambda: m.die_once.delay('x'))")
    flaky, killed = jobs
    worker = traced.worker("prefork", 2)
    traced.all_quiet()
    assert worker.terminate() == 0
    runs = collector.of(flaky)
    assert [run.attributes["celery_guard.attempt"] for run in runs] == [1, 2, 3]
    assert [run.attributes["celery_guard.outcome"] for run in runs] == ["retry", "retry", "succeeded"]
    assert [run.status for run in runs] == [2, 2, 0]
    assert {run.trace for run in runs} == {jobs[flaky]}
    assert len(collector.of(flaky, "publish")) >= 3
    lost, run = collector.of(killed)
    assert [each.attributes["celery_guard.attempt"] for each in (lost, run)] == [1, 2]
    assert (lost.attributes["celery_guard.outcome"], lost.status) == ("lost", 2)
    assert {each.trace for each in (lost, run)} == {jobs[killed]}
    assert b"not yet" not in collector.raw, "what an exception says went out"


def test_obs_2_a_duplicate_delivery_is_an_event_and_no_span(traced: Fleet, collector: Collector) -> None:
    [(job, trace)] = sent(traced, "send(lambda: m.add.delay(1, 1))").items()
    worker = traced.worker("prefork", 1)
    traced.settled(job)
    publish_again(traced, job)
    eventually(lambda: "nothing to do for this delivery" in worker.output())
    assert worker.terminate() == 0
    assert len(collector.of(job)) == 1
    [event] = collector.events
    assert (event.name, event.trace, event.attributes["messaging.message.id"]) == ("celery_guard.duplicate", trace, job)
    assert event.attributes["celery_guard.verdict"] == "already succeeded"


def publish_again(fleet: Fleet, job: str) -> None:
    """The job's message, byte for byte, a second time."""
    code = f"""
from dataclasses import replace
from celery_guard.integrations.celery.publisher import BrokerPublisher
from celery_guard.job.row import Outgoing
job, payload = m.guard.store.job({job!r}), m.guard.store.payload({job!r}, 0)
BrokerPublisher(m.app).publish([Outgoing(job.id, job.task, job.queue, job.kind, job.state, None, 0, 0, 1, 0, payload, None)])
"""
    fleet.says(code)


def test_obs_2_a_publisher_without_tracing_gives_each_job_a_trace_of_its_own(
    traced: Fleet, collector: Collector
) -> None:
    jobs = [traced.app.add.delay(number, 1).id for number in range(2)]
    worker = traced.worker("prefork", 2)
    traced.all_quiet()
    assert worker.terminate() == 0
    runs = [run for job in jobs for run in collector.of(job)]
    assert [(run.parent, run.links) for run in runs] == [("", ()), ("", ())]
    assert len({run.trace for run in runs}) == 2


def test_obs_2_a_relay_that_comes_long_after_and_a_replay_go_on_with_the_trace(
    traced: Fleet, collector: Collector
) -> None:
    [(job, trace)] = sent(traced, "send(lambda: m.fails.delay())").items()
    # the publisher's process has ended; there was no relay until now
    worker = traced.worker("prefork", 1)
    assert traced.settled(job).state.value == "dead"
    traced.store.replay([job])
    eventually(lambda: traced.job(job).attempts == 1 and traced.job(job).replays == 1 and traced.state(job) == "dead")
    assert worker.terminate() == 0
    assert [run.trace for run in collector.of(job)] == [trace, trace]
    assert len(collector.of(job, "publish")) >= 2


def test_obs_2_an_adopted_message_goes_on_with_the_trace_that_it_brought(traced: Fleet, collector: Collector) -> None:
    trace = "0af7651916cd43dd8448eb211c80319c"
    headers = {"traceparent": f"00-{trace}-b7ad6b7169203331-01"}
    code = f"from celery import Celery\nimport os, json\napp = Celery(broker=os.environ['APP_BROKER'])\napp.conf.update(json.loads(os.environ['APP_CONF']))\nprint(app.send_task('tests.integration.app.flaky', (1,), headers={headers!r}).id)"
    job = traced.says(code).strip()
    worker = traced.worker("prefork", 1)
    traced.settled(job)
    assert worker.terminate() == 0
    assert [(run.trace, run.parent) for run in collector.of(job)] == [(trace, "b7ad6b7169203331")] * 2


@pytest.mark.parametrize("where", ["parent", "child"])
def test_obs_2_beside_the_instrumentation_a_guarded_job_has_one_span_an_attempt_and_a_plain_task_keeps_its_own(
    traced: Fleet, collector: Collector, where: str
) -> None:
    code = "send(lambda: m.nests.delay()); send(lambda: m.plain.delay())"
    jobs = sent(traced, code, APP_INSTRUMENTED="parent")
    nests, plain = jobs
    worker = traced.worker("prefork", 1, APP_INSTRUMENTED=where)
    traced.all_quiet()
    eventually(lambda: "app_traced.plain" in str(traced.marks()))
    assert worker.terminate() == 0
    [run] = collector.of(nests)
    [query], [child] = collector.named("query"), collector.named("run tests.integration.app.add")
    assert {run.trace, query.trace, child.trace} == {jobs[nests]}
    assert query.parent == run.id
    assert Counter(span.name for span in collector.spans if "/" in span.name) == {
        "apply_async/tests.integration.app_traced.plain": 1,
        "run/tests.integration.app_traced.plain": 1,
    }
    assert {span.trace for span in collector.spans if "/" in span.name} == {jobs[plain]}


@pytest.mark.parametrize("wrong", ["http://127.0.0.1:1", "hangs", "raises", "processor"])
def test_obs_2_broken_telemetry_fails_no_job_and_lets_children_and_workers_end(
    make_fleet: Callable[..., Fleet], wrong: str
) -> None:
    fleet = make_fleet("redis-postgresql", "tests.integration.app_traced")
    jobs = [fleet.app.add.delay(number, 1).id for number in range(4)]
    worker = fleet.worker(
        "prefork", 2, "--max-tasks-per-child", "1", APP_OTLP=wrong, CELERY_GUARD_TELEMETRY_FLUSH="200ms"
    )
    fleet.all_quiet()
    assert [fleet.job(job).attempts for job in jobs] == [1, 1, 1, 1]
    assert fleet.counted() == {"add": 4}
    assert worker.terminate() == 0


def test_obs_2_without_opentelemetry_jobs_run_and_carry_no_context(
    make_fleet: Callable[..., Fleet], tmp_path: Path
) -> None:
    (tmp_path / "sitecustomize.py").write_text("import sys\nsys.modules['opentelemetry'] = None\n")
    fleet = make_fleet("embedded")
    job = fleet.says("print(m.flaky.delay(1).id)", PYTHONPATH=str(tmp_path)).strip()
    worker = fleet.worker("prefork", 1, PYTHONPATH=str(tmp_path))
    assert fleet.settled(job).state.value == "succeeded"
    assert fleet.job(job).attempts == 2
    assert worker.terminate() == 0
    payload = fleet.store.payload(job)
    assert payload is not None
    assert not {"traceparent", "tracestate", "baggage"} & {*json.loads(payload.headers)}


@pytest.mark.parametrize("pool", ["threads", "gevent", "solo"])
def test_obs_2_other_pools_export_every_attempt_before_they_end(traced: Fleet, collector: Collector, pool: str) -> None:
    jobs = sent(traced, "for n in range(4): send(lambda: m.nests.delay())")
    worker = traced.worker(pool, 2)
    traced.all_quiet()
    assert worker.terminate() == 0
    for job, trace in jobs.items():
        [run] = collector.of(job)
        assert run.trace == trace
    queries = collector.named("query")
    assert {query.parent for query in queries} == {
        run.id for run in collector.named("run tests.integration.app_traced.nests")
    }
    assert len(queries) == 4
