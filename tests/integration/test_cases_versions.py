"""PAY-2 and the renamed tasks of PAY-1: publishers and workers of two releases in one fleet, and back again."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timezone
from typing import Any

import pytest
from celery.app.defaults import NAMESPACES
from sqlalchemy import create_engine
from sqlalchemy.orm import Session

from celery_guard.job.envelope import VERSION

from .fleet import Fleet, eventually

pytestmark = pytest.mark.integration

LONG_AGO, FAR_AHEAD = (datetime(year, 1, 1, tzinfo=timezone.utc) for year in (2026, 2999))

OLD, NEW = "1", "2"


@pytest.fixture(params=["redis-postgresql", "rabbitmq-mariadb", "redis-redis"])
def fleet(request: pytest.FixtureRequest, make_fleet: Callable[..., Fleet]) -> Fleet:
    return make_fleet(request.param, module="tests.integration.app_versions")


@pytest.fixture
def one_fleet(make_fleet: Callable[..., Fleet]) -> Fleet:
    return make_fleet("redis-postgresql", module="tests.integration.app_versions")


def sent_by_old(fleet: Fleet, call: str) -> str:
    """The id of a job that a publisher of the old release has enqueued."""
    return fleet.says(f"print(m.{call}.id)", APP_RELEASE=OLD).strip()


def held(fleet: Fleet, id: str) -> Any:
    job = fleet.job(id)
    return job if str(job.reason) == "held_version" else None


# -- a payload in two shapes --------------------------------------------------------------------------------------------


def test_pay_2_a_message_of_the_old_shape_is_read_by_the_new_worker(fleet: Fleet) -> None:
    id = sent_by_old(fleet, "ship.delay(m.Order(number=7, euros=5))")
    fleet.worker(APP_RELEASE=NEW)
    assert fleet.settled(id).state.value == "succeeded"
    assert fleet.marks() == ["2: 7 for 500 cents"]


def test_pay_2_across_a_rollback_a_new_message_waits_uncharged_and_runs_when_the_new_worker_is_back(
    fleet: Fleet,
) -> None:
    sent = fleet.app.ship.delay(fleet.app.Order(number=7, cents=5))
    rolled_back = fleet.worker(APP_RELEASE=OLD)
    job = eventually(lambda: held(fleet, sent.id), what="held")
    assert (job.state.value, job.attempts, job.crashes, job.retries) == ("pending", 0, 0, 0)
    (note,) = job.failures
    assert "version 2; this worker reads up to version 1" in note.message
    eventually(lambda: fleet.job(sent.id).fence > 2, what="offered again")
    assert len(fleet.job(sent.id).failures) == 1, "a hold is noted once"
    rolled_back.terminate()
    fleet.worker(APP_RELEASE=NEW)
    job = fleet.settled(sent.id)
    assert (job.state.value, job.attempts) == ("succeeded", 1)
    assert fleet.marks() == ["2: 7 for 5 cents"]


def test_pay_2_in_a_mixed_fleet_each_message_finds_a_worker_that_reads_it(fleet: Fleet) -> None:
    fleet.worker(APP_RELEASE=OLD)
    fleet.worker(APP_RELEASE=NEW)
    new = [fleet.app.ship.delay(fleet.app.Order(number=n, cents=n)).id for n in range(6)]
    old = sent_by_old(fleet, "ship.delay(m.Order(number=70, euros=1))")
    for id in [*new, old]:
        assert fleet.settled(id, seconds=60).state.value == "succeeded"
    assert sorted(mark for mark in fleet.marks() if " 70 " not in mark) == [f"2: {n} for {n} cents" for n in range(6)]
    assert len(fleet.marks()) == 7


def test_pay_2_what_no_worker_reads_for_too_long_is_a_dead_letter_and_replays_when_one_does(one_fleet: Fleet) -> None:
    fleet = one_fleet
    fleet.environment["CELERY_GUARD_HOLD_VERSION"] = "2s"
    sent = fleet.app.ship.delay(fleet.app.Order(number=7, cents=5))
    rolled_back = fleet.worker(APP_RELEASE=OLD)
    job = fleet.settled(sent.id)
    assert (job.state.value, job.reason.value, job.attempts) == ("dead", "held_version", 0)
    eventually(lambda: sent.state == "FAILURE", what="Celery was told")
    # a replay begins a wait of its own
    assert fleet.store.replay([sent.id])[0].answer == "replayed"
    eventually(lambda: held(fleet, sent.id) and fleet.job(sent.id).state.value == "pending", what="held again")
    rolled_back.terminate()
    fleet.worker(APP_RELEASE=NEW)
    assert fleet.settled(sent.id).state.value == "succeeded"
    assert fleet.marks() == ["2: 7 for 5 cents"]


@pytest.mark.parametrize(
    ("how", "marks"), [("again", 2), ("otherwise", 2)], ids=["the same message again", "a changed message"]
)
def test_pay_2_an_old_message_stays_readable_through_retries(one_fleet: Fleet, how: str, marks: int) -> None:
    id = sent_by_old(one_fleet, f"ship.delay(m.Order(number=7, euros=5), how={how!r})")
    one_fleet.worker(APP_RELEASE=NEW)
    assert one_fleet.settled(id).state.value == "succeeded"
    assert one_fleet.marks() == ["2: 7 for 500 cents"] * marks


def test_pay_2_a_dead_letter_of_the_old_release_replays_in_the_new_one(one_fleet: Fleet) -> None:
    fleet = one_fleet
    id = sent_by_old(fleet, "ship.delay(m.Order(number=7, euros=5), how='fails here')")
    old = fleet.worker(APP_RELEASE=OLD)
    assert fleet.settled(id).state.value == "dead"
    old.terminate()
    fleet.worker(APP_RELEASE=NEW)
    assert fleet.store.replay([id])[0].answer == "replayed"
    fleet.until(id, "succeeded")
    assert fleet.marks()[-1] == "2: 7 for 500 cents"


def test_pay_2_a_payload_goes_through_the_callers_transaction_and_a_chain(one_fleet: Fleet) -> None:
    fleet = one_fleet
    m = fleet.app
    engine = create_engine(fleet.environment["CELERY_GUARD_STORE"])
    with Session(engine) as session, m.guard.using(session):
        first = m.ship.delay(m.Order(number=1, cents=1))
        second = (m.sell.si({"cents": 3, "snapshot_taken_at": "2999-01-01T00:00:00Z"}) | m.pack.s(label="x")).delay()
        session.commit()
    engine.dispose()
    fleet.worker(APP_RELEASE=NEW)
    assert first.get(timeout=30) == "by release 2"
    second.get(timeout=30)
    assert sorted(fleet.marks()) == ["2: 1 for 1 cents", "2: 3 paper x", "sold for 3"]


def test_pay_2_an_inserted_parameter_moves_no_value(one_fleet: Fleet) -> None:
    id = sent_by_old(one_fleet, "pack.delay(7, 'fragile')")
    one_fleet.worker(APP_RELEASE=NEW)
    assert one_fleet.settled(id).state.value == "succeeded"
    assert one_fleet.marks() == ["2: 7 paper fragile"]


def test_pay_2_a_retry_gives_named_arguments_anew_by_place(one_fleet: Fleet) -> None:
    sent = one_fleet.app.pack.delay(7, label="again")
    one_fleet.worker(APP_RELEASE=NEW)
    assert one_fleet.settled(sent.id).state.value == "succeeded"
    assert one_fleet.marks() == ["2: 7 paper again", "2: 8 paper again"]


def test_pay_2_a_message_of_a_newer_guard_is_parked_too(one_fleet: Fleet, monkeypatch: pytest.MonkeyPatch) -> None:
    fleet = one_fleet
    fleet.environment["CELERY_GUARD_HOLD_VERSION"] = "1s"
    monkeypatch.setattr("celery_guard.flow.enqueue.PLAIN", VERSION + 1)
    sent = fleet.app.pack.delay(1, label="x")
    fleet.worker(APP_RELEASE=NEW)
    job = fleet.settled(sent.id)
    assert (job.state.value, job.reason.value, job.attempts) == ("dead", "held_version", 0)
    assert fleet.marks() == []


def test_pay_2_an_expired_snapshot_is_a_dead_letter_that_says_so(one_fleet: Fleet) -> None:
    fleet = one_fleet
    old = fleet.app.sell.delay(fleet.app.Price(cents=5, snapshot_taken_at=LONG_AGO))
    good = fleet.app.sell.delay(fleet.app.Price(cents=6, snapshot_taken_at=FAR_AHEAD))
    fleet.worker(APP_RELEASE=NEW)
    job = fleet.settled(old.id)
    assert (job.state.value, job.reason.value, job.failures[0].failure_class) == (
        "dead",
        "snapshot_expired",
        "permanent",
    )
    assert "was taken at 2026-01-01" in job.failures[0].message
    assert fleet.settled(good.id).state.value == "succeeded"
    assert fleet.marks() == ["sold for 6"]


def test_pay_2_an_expired_snapshot_is_refreshed_where_its_model_can(one_fleet: Fleet) -> None:
    fleet = one_fleet
    sent = fleet.app.sell_fresh.delay(fleet.app.Fresh(cents=5, snapshot_taken_at=LONG_AGO))
    fleet.worker(APP_RELEASE=NEW)
    assert sent.get(timeout=30) == 6
    assert fleet.marks() == ["sold for 6"]


# -- a task with a new name ---------------------------------------------------------------------------------------------


def test_pay_1_a_renamed_task_runs_what_was_sent_under_its_old_name(fleet: Fleet) -> None:
    id = sent_by_old(fleet, "bill.delay(5)")
    fleet.worker(APP_RELEASE=NEW)
    job = fleet.settled(id)
    assert (job.state.value, job.task) == ("succeeded", "billing.charge")
    assert fleet.marks() == ["2: bill 5"]


@pytest.mark.skipif("pool_start_method" not in NAMESPACES["worker"], reason="this Celery does not spawn")
def test_pay_1_children_that_are_spawned_know_the_old_name(one_fleet: Fleet) -> None:
    one_fleet.configure(worker_pool_start_method="spawn")
    id = sent_by_old(one_fleet, "bill.delay(5)")
    one_fleet.worker(APP_RELEASE=NEW)
    assert one_fleet.settled(id).state.value == "succeeded"
    assert one_fleet.marks() == ["2: bill 5"]


def test_pay_1_both_names_run_in_a_mixed_fleet(one_fleet: Fleet) -> None:
    fleet = one_fleet
    fleet.environment.update(CELERY_GUARD_SUSPECT_AFTER="200ms", CELERY_GUARD_MAX_PUBLICATIONS="50")
    fleet.worker(APP_RELEASE=OLD)
    fleet.worker(APP_RELEASE=NEW)
    ids = [fleet.app.bill.delay(n).id for n in range(4)]
    ids += [sent_by_old(fleet, f"bill.delay({n})") for n in (10, 11)]
    for id in ids:
        assert fleet.settled(id, seconds=60).state.value == "succeeded"
    assert sorted(int(mark.split()[-1]) for mark in fleet.marks()) == [0, 1, 2, 3, 10, 11]


def test_pay_1_a_key_is_one_under_the_old_and_the_new_name(one_fleet: Fleet) -> None:
    fleet = one_fleet
    first = sent_by_old(fleet, "bill.delay(5)")
    again = fleet.app.bill.delay(5)
    assert (again.id, again.duplicate) == (first, True)
    fleet.worker(APP_RELEASE=NEW)
    fleet.settled(first)
    fleet.all_quiet()
    assert fleet.marks() == ["2: bill 5"]


def test_pay_1_a_renamed_task_retries_with_other_arguments(one_fleet: Fleet) -> None:
    id = sent_by_old(one_fleet, "bill.delay(order=-5)")
    one_fleet.worker(APP_RELEASE=NEW)
    job = one_fleet.settled(id)
    assert (job.state.value, job.attempts) == ("succeeded", 2)
    assert one_fleet.marks() == ["2: bill -5", "2: bill -105"]
