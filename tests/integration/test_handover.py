"""Jobs that go on as something else, or are given what another job has: nothing is lost on the way, and nothing doubled."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from celery import Celery
from sqlalchemy import create_engine, text
from sqlalchemy.orm import Session

from celery_guard import Guard

from .fleet import Fleet, eventually

pytestmark = pytest.mark.integration


@pytest.fixture
def fleet(make_fleet: Callable[..., Fleet]) -> Fleet:
    return make_fleet("redis-postgresql", module="tests.integration.app_handover")


@pytest.mark.parametrize(
    ("what", "value", "runs"),
    [
        ("guarded", 3, {"add": 1}),
        ("plain", "plain", {"plain plain": 1}),
        ("chain", 13, {"add": 2}),
        ("group", [2, 4], {"add": 2}),
    ],
)
def test_a_job_that_replaces_itself_ends_once_with_what_replaced_it(
    fleet: Fleet, what: str, value: object, runs: dict[str, int]
) -> None:
    result = fleet.app.becomes.delay(what)
    fleet.worker()
    assert result.get(timeout=30) == value
    job = fleet.settled(result.id)
    assert job.state.value == "succeeded"
    fleet.all_quiet()
    assert fleet.counted() == {f"becomes {what}": 1, **runs}


def test_a_duplicate_inside_a_canvas_goes_on_with_the_value_of_its_holder(fleet: Fleet) -> None:
    app = fleet.app
    note = app.app.tasks["tests.integration.app.note"]
    first = app.pay.delay(1)
    again = app.chain(app.pay.s(1), note.s()).delay()
    linked = app.pay.apply_async((1,), link=note.si("linked"))
    fleet.worker()
    assert first.get(timeout=30) == "paid 1"
    assert again.get(timeout=30) == "paid 1"
    assert linked.get(timeout=30) == "paid 1"
    fleet.all_quiet()
    assert fleet.counted() == {"pay 1": 1, "note paid 1": 1, "note linked": 1}


def test_writes_through_the_jobs_transaction_are_kept_however_the_body_leaves_its_session(fleet: Fleet) -> None:
    engine = create_engine(fleet.environment["CELERY_GUARD_STORE"])
    with engine.begin() as connection:
        connection.execute(text("drop table if exists handed_over"))
        connection.execute(text("create table handed_over (how varchar(20))"))
    ids = [fleet.app.writes.delay(how).id for how in ("with", "close", "replace")]
    fleet.worker()
    for id in ids:
        assert fleet.settled(id).state.value == "succeeded"
    fleet.all_quiet()
    with engine.connect() as connection:
        found = connection.execute(text("select how from handed_over order by how")).scalars().all()
    engine.dispose()
    assert found == ["close", "replace", "with"]
    assert fleet.counted()["note from with"] == 1
    assert fleet.counted()["note replaced"] == 1


def test_a_guarded_task_sent_by_name_from_a_process_that_does_not_know_it_runs_once(fleet: Fleet) -> None:
    known = fleet.app.app
    stranger = Celery("stranger", broker=fleet.environment["APP_BROKER"], set_as_current=False)
    stranger.conf.update(known.conf.changes)
    guard = Guard(stranger, store=fleet.environment["CELERY_GUARD_STORE"])
    engine = create_engine(fleet.environment["CELERY_GUARD_STORE"])
    with Session(engine) as session, session.begin(), guard.using(session):
        sent = [stranger.send_task("tests.integration.app_handover.pay", (n,)).id for n in range(3)]
    engine.dispose()
    guard.store.close()
    fleet.worker()
    eventually(lambda: all(fleet.counted()[f"pay {n}"] for n in range(3)), what="all have run")
    fleet.all_quiet()
    assert [(job.state.value, job.kind.value, job.attempts) for job in map(fleet.job, sent)] == [
        ("succeeded", "run", 1)
    ] * 3
    assert fleet.counted() == {f"pay {n}": 1 for n in range(3)}


@pytest.mark.parametrize("how", ["raises", "keeps quiet"])
def test_every_way_to_ask_for_another_run_is_bounded(fleet: Fleet, how: str) -> None:
    result = fleet.app.asks.delay(how)
    fleet.worker()
    job = fleet.settled(result.id)
    assert (job.state.value, job.attempts, fleet.counted()[f"asks {how}"]) == ("dead", 3, 3)
