"""What becomes of a job, in the words that Celery has for it: found by running Celery's own test suite with every task guarded."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from datetime import datetime, timedelta, timezone
from typing import Any

import pytest
from celery.app.control import Control
from celery.exceptions import Reject, TaskRevokedError

from .fleet import Fleet, eventually

pytestmark = pytest.mark.integration


@pytest.fixture
def fleet(make_fleet: Callable[..., Fleet]) -> Fleet:
    return make_fleet("redis-postgresql", module="tests.integration.app_words")


def test_a_message_that_was_given_back_comes_again_at_once_as_redelivered_and_is_no_retry(fleet: Fleet) -> None:
    result = fleet.app.gives_back_once.delay()
    fleet.worker()
    assert result.get(timeout=30) == [0, 2]
    assert fleet.counted() == {"gives back": 2}


@pytest.mark.parametrize("how", ["map", "starmap", "chunks"])
def test_a_list_of_items_of_a_guarded_task_is_a_job_that_survives_its_process(fleet: Fleet, how: str) -> None:
    squares = fleet.app.squares
    if how == "map":
        result = squares.map([2, 3]).delay()
    else:
        items = [(2,), (3,)]
        result = squares.starmap(items).delay() if how == "starmap" else squares.chunks(items, 2).delay()
    fleet.worker()
    assert result.get(timeout=60) == ([[4, 9]] if how == "chunks" else [4, 9])
    assert fleet.counted() == {"squares 2": 2, "squares 3": 2}
    [job] = fleet.store.jobs(limit=10)
    assert (job.state.value, job.attempts, job.crashes) == ("succeeded", 2, 1)


def test_a_list_of_items_of_a_plain_task_is_celerys_own(fleet: Fleet) -> None:
    result = fleet.app.app.tasks["tests.integration.app.plain"].map(["a", "b"]).delay()
    fleet.worker()
    result.get(timeout=60)
    assert fleet.store.jobs(limit=10) == []


@pytest.mark.parametrize("stack", ["redis-postgresql", "rabbitmq-postgresql"])
def test_monitors_that_ask_for_it_are_told_what_was_sent(make_fleet: Callable[..., Fleet], stack: str) -> None:
    fleet = make_fleet(stack, task_send_sent_event=True)
    app = fleet.app.app
    ids = [fleet.app.add.delay(n, 1).id for n in range(3)]
    told: dict[str, dict[str, Any]] = {}
    with app.connection_for_read() as connection:
        receiver = app.events.Receiver(
            connection, handlers={"task-sent": lambda event: told.update({event["uuid"]: event})}
        )
        with receiver.consumer_context(wakeup=False) as (listening, _, _):
            fleet.relay()
            eventually(lambda: _heard(listening) and told.keys() >= set(ids), what="an event for each")
    event = told[ids[2]]
    assert (event["name"], event["args"], event["queue"]) == ("tests.integration.app.add", "(***, ***)", fleet.queue)


def _heard(connection: Any) -> bool:
    with contextlib.suppress(TimeoutError):
        connection.drain_events(timeout=0.5)
    return True


def test_a_call_by_name_may_be_retried_by_place(fleet: Fleet) -> None:
    result = fleet.app.goes_on_by_place.delay(a=1, b=2, label="kept")
    fleet.worker()
    assert result.get(timeout=30) == [2, 3, "kept"]


def test_a_body_sees_the_eta_it_was_sent_with(fleet: Fleet) -> None:
    app = fleet.app
    when = datetime.now(timezone.utc) + timedelta(seconds=1)
    results = [app.tells_its_eta.apply_async(eta=when), app.tells_its_eta.delay()]
    fleet.worker()
    later, at_once = [result.get(timeout=30) for result in results]
    assert abs(datetime.fromisoformat(later) - when) < timedelta(seconds=1)
    assert at_once is None


def test_who_asks_for_a_rejected_job_is_given_the_bodys_reject(fleet: Fleet) -> None:
    result = fleet.app.refuses.delay()
    fleet.worker()
    with pytest.raises(Reject, match="not wanted"):
        result.get(timeout=30)
    assert result.state == "FAILURE"
    assert fleet.settled(result.id).reason.value == "rejected"


def test_an_expired_job_is_revoked_for_celery_and_dead_for_the_guard_and_its_errback_is_called(fleet: Fleet) -> None:
    app = fleet.app
    result = app.note.apply_async(("late",), expires=0.001, link_error=app.note.si("errback"))
    rest = (app.note.si("late too").set(expires=0.001) | app.note.s()).delay()
    fleet.worker()
    for handle in (result, rest):
        with pytest.raises(TaskRevokedError):
            handle.get(timeout=30)
    # the rest of a chain is told after its first
    eventually(lambda: (result.state, rest.state) == ("REVOKED", "REVOKED"), what="both are revoked")
    job = fleet.settled(result.id)
    assert (job.state.value, job.reason.value) == ("dead", "expired")
    eventually(lambda: fleet.counted() == {"note errback": 1}, what="the errback, and nothing else")


def test_a_broadcast_that_only_a_worker_has_heard_cancels_the_row_of_a_job_that_reaches_it(fleet: Fleet) -> None:
    """By stamps, or by id from an app without the guard."""
    app = fleet.app
    fleet.worker()
    control = app.app.control
    assert control.revoke_by_stamped_headers({"batch": ["bad"]}, reply=True, timeout=30, limit=1)
    assert Control.revoke(control, "by-id", reply=True, timeout=30, limit=1)
    stamped = app.note.si("stamped")
    stamped.stamp(batch="bad")
    good = app.note.si("good")
    good.stamp(batch="good")
    revoked = [stamped.delay(), app.note.apply_async(("by id",), task_id="by-id")]
    assert good.delay().get(timeout=30) == "good"
    for result in revoked:
        with pytest.raises(TaskRevokedError):
            result.get(timeout=30)
        assert fleet.settled(result.id).state.value == "cancelled"
    assert fleet.counted() == {"note good": 1}
