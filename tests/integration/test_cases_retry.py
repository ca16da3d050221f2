"""RETRY: what is retried, how often, who learns of the end, and what a job keeps on its way."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from .fleet import Fleet, eventually

pytestmark = pytest.mark.integration


@pytest.fixture
def fleet(make_fleet: Callable[..., Fleet]) -> Fleet:
    return make_fleet("redis-postgresql", module="tests.integration.app_retry")


def hooks(fleet: Fleet) -> list[str]:
    return [mark for mark in fleet.marks() if mark.startswith("on_")]


def test_retry_1_explicit_retry_inside_a_catch_all(fleet: Fleet) -> None:
    result = fleet.app.mixed.delay("old")
    fleet.worker()
    job = fleet.settled(result.id)
    eventually(lambda: "on_failure ValueError" in fleet.marks())
    bodies = [mark for mark in fleet.marks() if mark.startswith("mixed")]
    assert bodies == ["mixed old 0", "mixed new 1", "mixed new 2", "mixed new 3"]
    assert (job.state.value, job.reason.value, job.attempts, job.crashes) == ("dead", "exhausted", 4, 0)
    history = ["ValueError"] * 3
    assert [mark for mark in hooks(fleet) if mark != "on_retry"] == [
        f"on_dead ValueError always {history}",
        "on_failure ValueError",
    ]


def test_retry_1_exhaustion_by_retry_itself_ends_in_the_same_hook(fleet: Fleet) -> None:
    result = fleet.app.asks_for_ever.delay()
    fleet.worker()
    job = fleet.settled(result.id)
    eventually(lambda: "on_failure KeyError" in fleet.marks())
    assert (job.state.value, job.reason.value, job.attempts) == ("dead", "exhausted", 4)
    assert [mark for mark in hooks(fleet) if mark != "on_retry"] == [
        "on_dead KeyError 'original' " + str(["KeyError"] * 4),
        "on_failure KeyError",
    ]


def test_retry_1_no_retries_left_is_final_at_once(fleet: Fleet) -> None:
    result = fleet.app.asks_for_ever.delay(limit=0)
    fleet.worker()
    job = fleet.settled(result.id)
    assert (job.state.value, job.reason.value, job.attempts) == ("dead", "exhausted", 1)


@pytest.mark.parametrize(
    ("what", "state", "reason"),
    [("ignore", "succeeded", "ignored"), ("reject", "dead", "rejected"), ("exit", "dead", "failed")],
)
def test_retry_1_control_flow_is_not_a_failure_to_retry(fleet: Fleet, what: str, state: str, reason: str) -> None:
    result = fleet.app.control.delay(what)
    fleet.worker()
    job = fleet.settled(result.id)
    assert (job.state.value, job.reason.value, job.attempts) == (state, reason, 1)
    eventually(lambda: fleet.job(result.id).told, what="told")
    assert fleet.counted()[f"control {what}"] == 1
    assert result.state == {"ignore": "PENDING", "reject": "FAILURE", "exit": "FAILURE"}[what]


def test_retry_1_a_message_that_is_given_back_is_given_back_a_bounded_number_of_times(fleet: Fleet) -> None:
    result = fleet.app.gives_back.delay()
    fleet.worker()
    job = fleet.settled(result.id)
    assert (job.state.value, job.reason.value, job.attempts) == ("dead", "rejected", 3)
    assert fleet.counted()["gives_back"] == 3


def test_retry_1_a_body_that_swallows_the_soft_limit_has_succeeded(fleet: Fleet) -> None:
    result = fleet.app.swallows.delay()
    fleet.worker()
    assert result.get(timeout=30) == "done"
    assert fleet.settled(result.id).state.value == "succeeded"
    assert fleet.counted()["swallows"] == 1


def test_retry_1_the_soft_limit_is_an_ordinary_failure(fleet: Fleet) -> None:
    result = fleet.app.told_softly.delay()
    fleet.worker()
    job = fleet.settled(result.id)
    assert (job.state.value, job.failures[0].type_name) == ("dead", "billiard.exceptions.SoftTimeLimitExceeded")


def records(fleet: Fleet, id: str) -> list[dict[str, Any]]:
    return [json.loads(line[0]) for line in fleet.lines() if line[1] == id and line[0].startswith("{")]


def send(fleet: Fleet, task: Any, **arguments: Any) -> Any:
    app = fleet.app
    queue = app.app.conf.task_default_queue
    return task.apply_async(
        kwargs={"order": 7, "tenant": "t1", **arguments},
        queue=queue + "-override",
        priority=3,
        expires=timedelta(hours=1).total_seconds(),
        headers={"x-custom": "kept", "traceparent": "00-1-2-3"},
        link=app.app.tasks["tests.integration.app.note"].si("linked"),
        link_error=app.app.tasks["tests.integration.app.note"].si("errback"),
    )


def listening(fleet: Fleet) -> tuple[str, ...]:
    queue = fleet.app.app.conf.task_default_queue
    return "-Q", f"{queue},{queue}-override"


@pytest.mark.parametrize(("part", "how"), [("i", "policy"), ("ii", "explicit"), ("iii", "crash")])
def test_retry_3_every_attempt_sees_the_same_message(fleet: Fleet, part: str, how: str) -> None:
    result = send(fleet, fleet.app.carries, how=how)
    fleet.worker("prefork", 2, *listening(fleet))
    assert result.get(timeout=60) == "carried"
    seen = records(fleet, result.id)
    assert len(seen) == 3
    assert all(one == seen[0] for one in seen), seen
    expected = {"tenant": "t1", "custom": "kept", "trace": "00-1-2-3", "priority": 3, "links": 1, "errbacks": 1}
    assert {name: seen[0][name] for name in expected} == expected
    assert seen[0]["routing_key"].endswith("-override")
    assert seen[0]["deadline"] != "None"
    assert seen[0]["key"] == fleet.job(result.id).key
    eventually(lambda: fleet.counted()["note linked"] == 1, what="the link")
    assert fleet.counted()["note errback"] == 0


def test_retry_3_iv_a_replayed_dead_letter_sees_the_same_message(fleet: Fleet) -> None:
    result = send(fleet, fleet.app.replayed)
    fleet.worker("prefork", 2, *listening(fleet))
    for _ in range(2):
        fleet.until(result.id, "dead")
        (replayed,) = fleet.store.replay([result.id])
        assert replayed.answer == "replayed", replayed
    fleet.until(result.id, "succeeded")
    seen = records(fleet, result.id)
    assert len(seen) == 3
    assert all(one == seen[0] for one in seen), seen
    job = fleet.job(result.id)
    assert (job.replays, len(job.failures)) == (2, 2)


def test_retry_3_a_retry_after_the_deadline_is_not_scheduled(fleet: Fleet) -> None:
    result = fleet.app.too_late.apply_async(expires=600)
    fleet.worker()
    job = fleet.settled(result.id)
    assert (job.state.value, job.reason.value, job.attempts) == ("dead", "expired", 1)
    # Celery stores the failure before it calls the hook
    eventually(lambda: result.state == "FAILURE" and "on_failure ConnectionError" in hooks(fleet))
    assert Counter(hooks(fleet)) == {
        "on_dead ConnectionError again ['ConnectionError']": 1,
        "on_failure ConnectionError": 1,
    }
