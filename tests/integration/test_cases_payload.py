"""PAY: messages that nobody knows, or that nobody can open. (PAY-3 and PAY-4 need no worker: tests/unit/integrations.)"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from .fleet import Fleet, eventually

pytestmark = pytest.mark.integration

STACK = ["redis-postgresql", "rabbitmq-mariadb"]


@pytest.fixture
def fleet(make_fleet: Callable[..., Fleet]) -> Fleet:
    fleet = make_fleet("redis-postgresql", module="tests.integration.app_payload")
    fleet.environment.update(CELERY_GUARD_SUSPECT_AFTER="200ms", CELERY_GUARD_MAX_PUBLICATIONS="3")
    return fleet


def test_pay_1_a_task_nobody_knows_becomes_a_dead_letter_and_replays_once_it_is_known(fleet: Fleet) -> None:
    result = fleet.app.bill.delay(5)
    stranger = fleet.worker(APP_KNOWS="nothing")
    job = fleet.settled(result.id)
    assert (job.state.value, job.reason.value, job.attempts) == ("dead", "unknown_task", 0)
    assert "no worker knows" in job.failures[0].message
    eventually(lambda: result.state == "FAILURE", what="Celery was told")
    eventually(lambda: fleet.job(result.id).told, what="told")
    stranger.terminate()
    fleet.worker(APP_KNOWS="bill")
    (replayed,) = fleet.store.replay([result.id])
    assert replayed.answer == "replayed"
    fleet.until(result.id, "succeeded")
    assert fleet.marks() == ["bill 5"]


def test_pay_1_in_a_mixed_fleet_the_worker_that_knows_the_task_gets_it(fleet: Fleet) -> None:
    fleet.environment.update(CELERY_GUARD_MAX_PUBLICATIONS="50")
    fleet.worker(APP_KNOWS="nothing")
    fleet.worker(APP_KNOWS="bill")
    ids = [fleet.app.bill.delay(n).id for n in range(6)]
    for id in ids:
        assert fleet.settled(id, seconds=60).state.value == "succeeded"
    assert sorted(fleet.marks()) == [f"bill {n}" for n in range(6)]


@pytest.mark.parametrize("stack", STACK)
def test_pay_5_what_nobody_can_open_is_set_aside_and_the_rest_runs(
    make_fleet: Callable[..., Fleet], stack: str
) -> None:
    fleet = make_fleet(stack, module="tests.integration.app_payload")
    worker = fleet.worker()
    name = fleet.app.app.conf.task_default_queue
    whole = json.dumps([[1], {}, {"callbacks": None, "errbacks": None, "chain": None, "chord": None}])
    headers = {"lang": "py", "task": "billing.charge", "id": "truncated", "retries": 0, "root_id": "truncated"}
    bad: list[dict[str, Any]] = [
        {"body": b"\x80\x04K\x01.", "content_type": "application/x-python-serialize", "content_encoding": "binary"},
        {"body": b'{"not": "an envelope"}', "content_type": "application/json", "content_encoding": "utf-8"},
        {"body": whole[:20].encode(), "content_type": "application/json", "content_encoding": "utf-8", "headers": headers},
        {
            "body": whole.encode(), "content_type": "application/json", "content_encoding": "utf-8",
            "headers": {**headers, "id": "plain", "compression": "application/x-gzip"},
        },
    ]  # fmt: skip
    with fleet.app.app.connection_for_write() as connection:
        producer = connection.Producer(auto_declare=False)
        for message in bad:
            producer.publish(message.pop("body"), exchange="", routing_key=name, **message)
    good = fleet.app.bill.delay(7)
    assert fleet.settled(good.id).state.value == "succeeded"
    found = eventually(lambda: (rows := fleet.store.quarantined()) and len(rows) == 4 and rows, what="four set aside")
    assert {row.content_type for row in found} == {"application/x-python-serialize", "application/json"}
    assert all(row.queue == name for row in found)
    assert worker.process.poll() is None
    assert fleet.marks() == ["bill 7"]
