"""STAT: what is recorded is what happened, and a failure can always be recorded."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

import pytest
from celery import chord

from celery_guard.integrations.celery.publisher import BrokerPublisher

from .fleet import Fleet, eventually

pytestmark = pytest.mark.integration


@pytest.fixture
def fleet(make_fleet: Callable[..., Fleet]) -> Fleet:
    return make_fleet("redis-postgresql", module="tests.integration.app_retry")


def test_stat_1_i_success_is_never_replaced_by_the_main_process(fleet: Fleet) -> None:
    result = fleet.app.stored_then_killed.delay()
    worker = fleet.worker()
    eventually(lambda: "lost its process" in worker.output(), what="the main process noticed")
    assert result.state == "SUCCESS"
    job = fleet.settled(result.id)
    assert (job.state.value, job.attempts) == ("succeeded", 1)
    # nobody noted that Celery was told, so it is told again, without the body
    eventually(lambda: fleet.job(result.id).told, what="told")
    assert (result.state, result.get(), fleet.counted()["stored_then_killed"]) == ("SUCCESS", "stored", 1)


def doubled(fleet: Fleet, id: str) -> None:
    """Put one more copy of a job's message on the broker, as a broker may."""
    payload = fleet.store.payload(id)
    assert payload is not None
    rows = fleet.store.take("copy", 100, timedelta(milliseconds=1))
    publisher = BrokerPublisher(fleet.app.app)
    published = publisher.publish([row for row in rows if row.id == id] * 2)
    publisher.close()
    assert published.sent == (id, id)


@pytest.mark.parametrize("position", [0, 1, 2])
def test_stat_1_iii_a_member_delivered_twice_counts_once(fleet: Fleet, position: int) -> None:
    app = fleet.app
    add, total = (app.app.tasks[f"tests.integration.app.{name}"] for name in ("add", "total"))
    result = chord([add.s(n, n) for n in range(3)], total.s()).delay()
    doubled(fleet, result.parent.results[position].id)
    fleet.worker()
    assert result.get(timeout=30) == 6
    fleet.all_quiet()
    eventually(lambda: fleet.job(result.id).told, what="told")
    assert fleet.counted() == {"add": 3, "total": 1}


def test_stat_1_iv_a_result_that_could_not_be_stored_is_told_again_without_the_body(fleet: Fleet) -> None:
    result = fleet.app.backend_out.delay()
    fleet.worker()
    job = fleet.settled(result.id)
    assert job.state.value == "succeeded"
    assert result.get(timeout=30) == "done"
    eventually(lambda: fleet.job(result.id).told, what="told")
    job = fleet.job(result.id)
    assert (job.state.value, job.attempts, fleet.counted()["backend_out"]) == ("succeeded", 1, 1)


KINDS = {
    "two arguments": ("tests.integration.app_retry.TwoArguments", "one kept"),
    "unprintable": ("tests.integration.app_retry.Unprintable", ""),
    "lock": ("tests.integration.app_retry.HoldsALock", "holds a lock"),
    "huge": ("RecursionError", "xxx"),
    "chained": ("KeyError", "300"),
    "nul": ("ValueError", "a"),
    "local": ("tests.integration.app_retry.awkward.<locals>.Local", "local"),
}


@pytest.mark.parametrize("stack", ["redis-postgresql", "embedded", "rabbitmq-mariadb", "redis-redis"])
def test_stat_2_any_exception_can_be_recorded(make_fleet: Callable[..., Fleet], stack: str) -> None:
    fleet = make_fleet(stack, module="tests.integration.app_retry")
    ids = {kind: fleet.app.awkward.delay(kind).id for kind in KINDS}
    worker = fleet.worker()
    for kind, (type_name, message) in KINDS.items():
        job = fleet.settled(ids[kind], seconds=60)
        assert (job.state.value, job.reason.value, job.attempts) == ("dead", "failed", 1), kind
        (failure,) = job.failures
        assert failure.type_name == type_name
        assert failure.message.startswith(message) or message in failure.message, failure.message[:200]
        assert len(failure.message.encode()) <= 4096
        assert len(failure.traceback.encode()) <= 32768
    assert fleet.job(ids["huge"]).failures[0].truncated
    alive = fleet.app.app.tasks["tests.integration.app.add"].delay(1, 1)
    assert alive.get(timeout=30) == 2
    assert worker.process.poll() is None
