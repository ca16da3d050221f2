"""OBS-1: the number of series has a ceiling, and a store or a port that is not there is said aloud."""

from __future__ import annotations

import socket
import sqlite3
from collections.abc import Callable
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest
from celery import Celery
from celery.schedules import crontab, schedule
from click.testing import Result
from prometheus_client import CollectorRegistry
from prometheus_client.parser import text_string_to_metric_families

from celery_guard.errors import PortError, StoreUnavailableError
from celery_guard.integrations.celery.metrics import make_registry
from celery_guard.integrations.celery.runtime import runtime_of
from celery_guard.job.replay import ReplayState
from celery_guard.testing.conformance.builders import new_job
from celery_guard.testing.conformance.moves import found, succeed
from celery_guard.testing.conformance.replays import new_replay
from celery_guard.watch.metrics import OTHER, QUEUES, SCHEDULES, text_of
from celery_guard.watch.serve import MetricsServer, address_of

JOBS, TENANTS, MESSAGES = 100_000, 5_000, 300

#: A job and a failure of each, in every state, from more tasks, queues, tenants, workers and messages than anybody can look at.
_MANY_JOBS = """
WITH RECURSIVE n(i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n WHERE i < :jobs - 1)
INSERT INTO guard_job (
    id, task, queue, tenant, kind, key_hash, state, reason, fence, owner, attempts, crashes, retries, created, due, started, finished,
    failure_class, cause, keep_until
)
SELECT
    'id-' || i, CASE i % 4 WHEN 0 THEN 'shop.charge' WHEN 1 THEN 'shop.ship' ELSE 'elsewhere.task' || (i % 2000) END,
    'queue-' || (i % 500), 'tenant-' || (i % :tenants), 'run', 'key-' || i,
    CASE i % 5 WHEN 0 THEN 'dead' WHEN 1 THEN 'pending' WHEN 2 THEN 'running' ELSE 'succeeded' END,
    CASE i % 5 WHEN 0 THEN 'failed' END, 2, 'host-' || (i % 900) || ':' || i, 2, 1, 1, 1000000 + i,
    CASE WHEN i % 5 IN (1, 2) THEN 1000000 END, 1000000 + i, CASE WHEN i % 5 NOT IN (1, 2) THEN 2000000 + i END,
    CASE i % 5 WHEN 0 THEN 'permanent' END, CASE i % 5 WHEN 0 THEN 'cause-' || i END, NULL
FROM n
"""

_MANY_FAILURES = """
INSERT INTO guard_failure (job, number, at, fence, attempt, failure_class, type_name, message, traceback, cause, worker)
SELECT id, 1, 1, 1, 1, 'permanent', 'shop.Error' || (rowid % 100), 'message-' || (rowid % :messages), '', 'c', owner
FROM guard_job WHERE state = 'dead'
"""


def samples(text: str) -> list[Any]:
    return [sample for family in text_string_to_metric_families(text) for sample in family.samples]


def labels_of(registry: CollectorRegistry, label: str) -> set[str]:
    return {sample.labels[label] for sample in samples(text_of(registry)) if label in sample.labels}


def totals(found: list[Any], name: str) -> float:
    return sum(float(sample.value) for sample in found if sample.name == f"celery_guard_{name}")


@pytest.mark.timeout(300)
def test_obs_1_a_hundred_thousand_jobs_of_thousands_of_tenants_have_no_more_series_than_a_few(
    app: Celery, tmp_path: Path
) -> None:
    with sqlite3.connect(tmp_path / "guard.db") as connection:
        connection.execute(_MANY_JOBS, {"jobs": JOBS, "tenants": TENANTS})
        connection.execute(_MANY_FAILURES, {"messages": MESSAGES})
    connection.close()
    registry = make_registry(runtime_of(app))
    before = samples(text_of(registry))
    tasks = {sample.labels["task"] for sample in before if "task" in sample.labels}
    queues = {sample.labels["queue"] for sample in before if "queue" in sample.labels}
    assert tasks == {"shop.charge", "shop.ship", OTHER}
    assert len(queues) == QUEUES + 1
    assert {sample.labels["owner"] for sample in before if "owner" in sample.labels} == {"payments", "nobody"}
    values = {value for sample in before for value in sample.labels.values()}
    assert not {
        value for value in values if value.startswith(("id-", "key-", "tenant-", "message-", "host-", "cause-"))
    }
    assert len(before) < 400
    assert totals(before, "jobs_enqueued_total") == JOBS
    assert totals(before, "attempts_started_total") == 2 * JOBS
    assert totals(before, "attempts_crashed_total") == JOBS
    assert totals(before, "attempts_failed_total") == totals(before, "dead_letters") == JOBS / 5
    assert totals(before, "live_leases") == 0
    for _ in range(12):
        runtime_of(app).store.fold(500)
    after = samples(text_of(registry))
    assert {(s.name, *sorted(s.labels.items())) for s in after} == {(s.name, *sorted(s.labels.items())) for s in before}
    for name in ("jobs_enqueued_total", "attempts_started_total", "jobs_ended_total", "attempts_failed_total"):
        assert totals(after, name) == totals(before, name)


def test_replays_that_are_not_over_are_counted_by_state(app: Celery) -> None:
    store = runtime_of(app).store
    store.replay_begin(new := new_replay())
    registry = make_registry(runtime_of(app))
    assert 'celery_guard_open_replays{state="building"} 1.0' in text_of(registry)
    store.replay_move(new.id, [ReplayState.BUILDING], ReplayState.STOPPED, "why")
    assert 'celery_guard_open_replays{state="stopped"} 1.0' in text_of(registry)
    store.replay_move(new.id, [ReplayState.STOPPED], ReplayState.ABORTED)
    assert 'celery_guard_open_replays{state="stopped"} 0.0' in text_of(registry)


def test_metrics_are_printed_once(run: Callable[..., Result]) -> None:
    result = run("metrics", "--once")
    assert result.exit_code == 0
    assert "celery_guard_store_up 1.0" in result.output
    assert "# HELP celery_guard_relay_lag_seconds" in result.output


def test_obs_1_a_port_that_is_taken_ends_the_command_with_an_error(run: Callable[..., Result]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as held:
        port = held.getsockname()[1]
        result = run("metrics", "--port", str(port))
    assert result.exit_code == 2
    assert "GUARD-104" in result.output
    assert f"127.0.0.1:{port}" in result.output


def test_a_store_that_is_out_is_a_metric_and_no_error_of_the_scrape(
    app: Celery, monkeypatch: pytest.MonkeyPatch
) -> None:
    registry = make_registry(runtime_of(app))

    def out() -> None:
        raise StoreUnavailableError("away")

    monkeypatch.setattr(runtime_of(app).store, "counted", out)
    assert [(sample.name, sample.value) for sample in samples(text_of(registry))] == [("celery_guard_store_up", 0.0)]


LAST = "celery_guard_schedule_last_success_timestamp_seconds"
EXPECTED = "celery_guard_schedule_expected_since_timestamp_seconds"


def test_each_schedule_says_when_what_it_sent_last_succeeded(app: Celery) -> None:
    app.conf.beat_schedule = {
        "nightly": {"task": "shop.charge", "schedule": 60},
        "plain": {"task": "shop.plain", "schedule": 60},
        "elsewhere": {"task": "elsewhere.task", "schedule": 60},
    }

    def plain() -> None: ...

    app.task(plain, name="shop.plain", shared=False)
    store, registry = runtime_of(app).store, make_registry(runtime_of(app))
    app.tasks["shop.charge"].apply()
    assert registry.get_sample_value(LAST, {"schedule": "nightly"}) == 0
    granted = succeed(store, new_job(task="shop.charge", schedule="nightly"))
    ended = found(store, granted.id).finished
    assert ended is not None
    assert registry.get_sample_value(LAST, {"schedule": "nightly"}) == pytest.approx(ended.timestamp(), abs=1e-5)
    # what leaves nothing in the store has not failed to succeed
    assert labels_of(registry, "schedule") == {"nightly"}


def test_obs_1_names_of_schedules_that_the_app_does_not_have_are_a_few(app: Celery) -> None:
    app.conf.beat_schedule = {"z-nightly": {"task": "shop.charge", "schedule": 60}}
    store, registry = runtime_of(app).store, make_registry(runtime_of(app))
    for number in range(SCHEDULES + 10):
        succeed(store, new_job(schedule=f"of customer {number:03}"))
    succeed(store, new_job(schedule="z-nightly"))
    before = labels_of(registry, "schedule")
    assert len(before) == SCHEDULES + 2
    assert {"z-nightly", OTHER} < before
    store.fold(500)
    assert labels_of(registry, "schedule") == before


def test_each_schedule_says_since_when_a_run_must_have_begun(app: Celery) -> None:
    class Odd(schedule):  # type: ignore[misc]
        def remaining_estimate(self, last_run_at: datetime) -> timedelta:
            return timedelta(0)

    now = datetime(2026, 1, 14, 12, 5, tzinfo=timezone.utc)
    kinds = {"daily": crontab("30", "1"), "every": schedule(timedelta(minutes=10)), "odd": Odd(60)}
    for kind in kinds.values():
        kind.nowfun = lambda: now
    app.conf.beat_schedule = {name: {"task": "shop.charge", "schedule": kind} for name, kind in kinds.items()}
    registry = make_registry(runtime_of(app))
    since = {name: registry.get_sample_value(EXPECTED, {"schedule": name}) for name in kinds}
    day = datetime(2026, 1, 14, tzinfo=timezone.utc).timestamp()
    # a run of an interval comes at any time of its stretch: the one before 12:00 has had until then
    assert since == {"daily": day + 1.5 * 3600, "every": day + 11 * 3600 + 50 * 60, "odd": None}


@pytest.mark.parametrize(
    ("text", "address"),
    [("9808", ("127.0.0.1", 9808)), ("0.0.0.0:80", ("0.0.0.0", 80)), ("[::1]:9808", ("::1", 9808))],  # noqa: S104
)
def test_an_address_is_a_port_or_host_and_port(text: str, address: tuple[str, int]) -> None:
    assert address_of(text) == address


@pytest.mark.parametrize("text", ["", "web", "host:", "host:http", "70000"])
def test_what_is_no_address_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="expected a port"):
        address_of(text)


def test_an_address_of_another_machine_is_an_error(app: Celery) -> None:
    with pytest.raises(PortError, match=r"192\.0\.2\.1"):
        MetricsServer(make_registry(runtime_of(app)), "192.0.2.1", 0)
