"""OBS-1: numbers that are right, whatever becomes of the processes that made them."""

from __future__ import annotations

import socket
import urllib.request
from collections import Counter
from collections.abc import Callable

import pytest
from prometheus_client.parser import text_string_to_metric_families

from celery_guard.integrations.celery.metrics import make_registry
from celery_guard.integrations.celery.runtime import runtime_of
from celery_guard.job.state import State
from celery_guard.watch.metrics import text_of

from .fleet import Fleet, eventually

pytestmark = pytest.mark.integration

MODULE = "tests.integration.app_metrics"
TASK = "tests.integration.app_metrics.pay"

#: What is asked of the bodies, again and again.
HOWS = ("well", "well", "wrong", "later", "kill")


def read(text: str) -> dict[tuple[str, ...], float]:
    """Samples by (name, values of the labels in the order of their names)."""
    return {
        (sample.name, *(sample.labels[name] for name in sorted(sample.labels))): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def scraped(fleet: Fleet) -> dict[tuple[str, ...], float]:
    return read(text_of(make_registry(runtime_of(fleet.app.app))))


def counters(samples: dict[tuple[str, ...], float]) -> dict[tuple[str, ...], float]:
    return {series: value for series, value in samples.items() if series[0].endswith(("_total", "_count", "_bucket"))}


@pytest.mark.parametrize("stack", ["redis-postgresql", "redis-mariadb", "redis-redis"])
@pytest.mark.timeout(240)
def test_obs_1_counters_are_what_the_rows_and_the_bodies_say_though_children_are_recycled_and_killed(
    make_fleet: Callable[..., Fleet], stack: str
) -> None:
    fleet = make_fleet(stack, MODULE, worker_max_tasks_per_child=3)
    pay = fleet.app.pay
    sent = [pay.delay(n=n, how=HOWS[n % len(HOWS)]) for n in range(40)]
    before = counters(scraped(fleet))
    worker = fleet.worker(concurrency=4)
    ended = (State.SUCCEEDED, State.DEAD)

    def done() -> bool:
        """Ends once all have ended; no counter has fallen until then."""
        nonlocal before
        now = counters(scraped(fleet))
        assert all(now.get(series, 0) >= value for series, value in before.items())
        before = now
        return sum(fleet.store.counts().get(state, 0) for state in ended) == len(sent)

    eventually(done, 150, "all have ended")
    assert worker.terminate(120) == 0
    after = scraped(fleet)
    rows = [fleet.job(one.id) for one in sent]
    states, bodies = Counter(row.state.value for row in rows), Counter(fleet.marks())
    assert states == {"succeeded": 32, "dead": 8}
    assert after["celery_guard_jobs_enqueued_total", TASK] == len(sent)
    assert after["celery_guard_jobs_ended_total", "", "succeeded", TASK] == states["succeeded"]
    assert after["celery_guard_jobs_ended_total", "permanent", "dead", TASK] == states["dead"]
    assert after["celery_guard_dead_letters_added_total", "payments", "failed", TASK] == states["dead"]
    assert after["celery_guard_attempts_started_total", TASK] == sum(bodies.values()) == sum(row.fence for row in rows)
    assert after["celery_guard_attempts_crashed_total", TASK] == sum(row.crashes for row in rows)
    # on a busy machine a healthy body may lose a lease of a second, too
    assert sum(row.crashes for row in rows) >= bodies["pay kill"] / 2
    retries = {series[1]: value for series, value in after.items() if series[0] == "celery_guard_retries_total"}
    assert sum(retries.values()) == sum(row.retries for row in rows)
    assert retries["transient"] >= 8
    failed = Counter(failure.failure_class for row in rows for failure in row.failures)
    for name in ("permanent", "transient"):
        assert after["celery_guard_attempts_failed_total", name, TASK] == failed[name] >= 8
    assert after.get(("celery_guard_attempts_fenced_total", TASK), 0) == failed["superseded"]
    assert after["celery_guard_run_seconds_count", "succeeded", TASK] == states["succeeded"]
    assert after["celery_guard_live_leases", TASK] == 0
    assert after["celery_guard_dead_letters", "payments"] == 8
    assert ("celery_guard_jobs", "running", TASK) not in after
    # a second call, a replay and a deletion leave what was counted as it is
    pay.delay(n=0)
    fleet.store.replay([one.id for one, row in zip(sent, rows, strict=True) if row.state is State.DEAD])
    fleet.store.fold(500)
    last = scraped(fleet)
    assert last["celery_guard_jobs_ended_total", "permanent", "dead", TASK] == 8
    assert last["celery_guard_replays_total", TASK] == 8
    assert last["celery_guard_duplicates_total", "enqueue", TASK] == 1
    assert last["celery_guard_jobs", "pending", TASK] == 8


@pytest.mark.parametrize("pool", ["prefork", "threads"])
def test_obs_1_a_worker_serves_the_whole_stores_metrics_where_it_is_asked_to(
    make_fleet: Callable[..., Fleet], pool: str
) -> None:
    fleet = make_fleet("embedded", MODULE)
    with socket.create_server(("127.0.0.1", 0)) as held:
        port = held.getsockname()[1]
        refused = fleet.worker(ready=False, CELERY_GUARD_METRICS=f"127.0.0.1:{port}")
        assert refused.process.wait(60) != 0
        assert "GUARD-104" in refused.output()
        assert f"127.0.0.1:{port}" in refused.output()
    fleet.app.pay.delay(n=1)
    worker = fleet.worker(pool, CELERY_GUARD_METRICS=f"127.0.0.1:{port}")

    def served() -> dict[tuple[str, ...], float]:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=20) as answer:
            return read(answer.read().decode())

    ended = ("celery_guard_jobs_ended_total", "", "succeeded", TASK)
    assert eventually(lambda: served().get(ended)) == 1
    assert worker.terminate() == 0
    with socket.create_server(("127.0.0.1", port)):
        """The port is free again: what served is gone."""
