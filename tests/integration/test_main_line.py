"""One job, end to end, on every stack: enqueued, published, run, settled, told."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from .conftest import STACKS
from .fleet import Fleet, eventually

pytestmark = pytest.mark.integration


#: Those that the other versions of Celery are tried with.
SMOKE = ("redis-postgresql", "rabbitmq-mariadb")


@pytest.fixture(
    params=[pytest.param(stack, marks=[pytest.mark.smoke] if stack in SMOKE else []) for stack in sorted(STACKS)]
)
def fleet(request: pytest.FixtureRequest, make_fleet: Callable[..., Fleet]) -> Fleet:
    return make_fleet(request.param)


def test_a_job_runs_once_and_its_result_reaches_celery(fleet: Fleet) -> None:
    result = fleet.app.add.delay(2, 3)
    assert fleet.state(result.id) == "pending"
    fleet.worker()
    assert result.get(timeout=30) == 5
    job = fleet.settled(result.id)
    assert (job.state.value, job.attempts, job.fence) == ("succeeded", 1, 1)
    eventually(lambda: fleet.job(result.id).told, what="told")
    assert fleet.marks() == ["add"]


def test_a_chain_and_its_links_are_carried_on_by_settle(fleet: Fleet) -> None:
    app = fleet.app
    workflow = app.chain(app.add.s(1, 2), app.add.s(10).set(link=app.note.si("linked")), app.note.s())
    result = workflow.delay()
    fleet.worker()
    assert result.get(timeout=30) == 13
    eventually(lambda: fleet.counted()["note linked"] == 1)
    fleet.all_quiet()
    assert fleet.counted() == {"add": 2, "note linked": 1, "note 13": 1}


def test_a_failure_is_a_dead_letter_and_a_failure_for_celery(fleet: Fleet) -> None:
    result = fleet.app.fails.delay("why")
    fleet.worker()
    with pytest.raises(ValueError, match="why"):
        result.get(timeout=30)
    job = fleet.settled(result.id)
    assert (job.state.value, job.reason.value, len(job.failures)) == ("dead", "failed", 1)
    assert job.failures[0].message == "why"


def test_a_transient_failure_is_retried_by_the_contract(fleet: Fleet) -> None:
    result = fleet.app.flaky.delay(2)
    fleet.worker()
    assert result.get(timeout=30) == "after 3"
    assert fleet.settled(result.id).retries == 2


def test_a_killed_child_loses_no_job(fleet: Fleet) -> None:
    result = fleet.app.die_once.delay("x")
    fleet.worker()
    assert result.get(timeout=60) == "x"
    job = fleet.settled(result.id)
    assert (job.crashes, job.attempts, fleet.counted()) == (1, 2, {"die_once": 2})


@pytest.mark.parametrize("pool", ["threads", "solo"])
@pytest.mark.parametrize(
    "stack", [pytest.param("embedded", marks=pytest.mark.smoke), "redis-postgresql", "rabbitmq-mariadb"]
)
def test_every_pool_runs_the_same_journey(make_fleet: Callable[..., Fleet], stack: str, pool: str) -> None:
    fleet = make_fleet(stack)
    app = fleet.app
    good = app.chain(app.add.s(1, 2), app.add.s(3)).delay()
    bad = app.fails.delay("why")
    again = app.flaky.delay(1)
    worker = fleet.worker(pool, 2)
    assert good.get(timeout=30) == 6
    assert again.get(timeout=30) == "after 2"
    with pytest.raises(ValueError, match="why"):
        bad.get(timeout=30)
    fleet.all_quiet()
    assert fleet.counted() == {"add": 2, "fails": 1, "flaky": 2}
    assert worker.terminate() == 0


@pytest.mark.parametrize("stack", ["embedded", pytest.param("redis-postgresql", marks=pytest.mark.smoke)])
def test_a_chord_completes_though_a_member_is_killed(make_fleet: Callable[..., Fleet], stack: str) -> None:
    fleet = make_fleet(stack, module="tests.integration.app_all_guarded")
    app = fleet.app
    result = app.chord([app.part.s(n) for n in range(3)], app.whole.s()).delay()
    fleet.worker()
    assert result.get(timeout=60) == 3
    fleet.all_quiet()
    assert fleet.counted() == {"part 0": 1, "part 1": 2, "part 2": 1, "whole [0, 1, 2]": 1}
