"""Putting the guard under an app that runs, and taking it out again: each mixed state of the two deploys, with real workers."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

import pytest
from celery.app.defaults import NAMESPACES

from celery_guard.testing.databases import empty

from .fleet import ROOT, Fleet, Worker, eventually

pytestmark = pytest.mark.integration


@pytest.fixture(params=["redis-postgresql", "rabbitmq-mariadb"])
def fleet(request: pytest.FixtureRequest, make_fleet: Callable[..., Fleet]) -> Fleet:
    fleet = make_fleet(request.param, module="tests.integration.app_adoption")
    fleet.environment.update(APP_GUARDED="yes")
    return fleet


@pytest.fixture
def one_fleet(make_fleet: Callable[..., Fleet]) -> Fleet:
    fleet = make_fleet("redis-postgresql", module="tests.integration.app_adoption")
    fleet.environment.update(APP_GUARDED="yes")
    return fleet


def plain(fleet: Fleet) -> Worker:
    """A worker that has no guard at all."""
    return fleet.worker(APP_GUARDED="", CELERY_GUARD_STORE="")


def sent_plain(fleet: Fleet, *calls: str) -> list[str]:
    """The ids of what a publisher without the guard has sent."""
    lines = "\n".join(f"print(m.{call}.id)" for call in calls)
    return fleet.says(f"from tests.integration.app_adoption import *\n{lines}", APP_GUARDED="").split()


def by(fleet: Fleet) -> dict[str, list[str]]:
    """Who ran what: mark -> guard or plain, in order."""
    found: dict[str, list[str]] = {}
    for what, _id, _retries, who in fleet.lines():
        found.setdefault(what, []).append(who)
    return found


def value(fleet: Fleet, id: str) -> Any:
    return fleet.app.app.AsyncResult(id).get(timeout=60)


# -- putting it in ------------------------------------------------------------------------------------------------------


def test_what_was_queued_before_the_guard_came_is_adopted_and_runs_once(fleet: Fleet) -> None:
    later, linked, chained, chorded, once = sent_plain(
        fleet,
        "add.apply_async((1, 1), countdown=1)",
        "add.apply_async((2, 2), link=m.add.s(10))",
        "chain(m.add.s(3, 3), m.add.s(20))()",
        "chord([m.add.s(n, n) for n in (4, 5, 6)])(m.total.s())",
        "again.delay(1)",
    )
    fleet.worker()
    assert [value(fleet, id) for id in (later, linked, chained, chorded, once)] == [2, 4, 26, 30, 1]
    eventually(lambda: "add 4 10" in fleet.marks(), what="the link")
    fleet.all_quiet()
    assert set(map(len, by(fleet).values())) == {1, 2}
    assert {what for what, who in by(fleet).items() if len(who) > 1} == {"again 1"}
    assert fleet.state(chained) == fleet.state(later) == "succeeded"


def test_a_retry_that_a_plain_worker_has_sent_is_gone_on_with(one_fleet: Fleet) -> None:
    fleet = one_fleet
    old = plain(fleet)
    (id,) = sent_plain(fleet, "wait.delay('go')")
    eventually(lambda: "wait go" in fleet.marks(), what="at work")
    # behind it, with one process: what waits in the broker while the worker is replaced
    (flaky,) = sent_plain(fleet, "flaky.apply_async(retries=1)")
    new = fleet.worker(concurrency=1)
    assert value(fleet, flaky) == "in the end"
    fleet.raise_flag("go")
    assert value(fleet, id) == "go"
    old.terminate()
    assert new.process.poll() is None


def test_old_publishers_and_old_workers_beside_new_workers_lose_and_double_nothing(fleet: Fleet) -> None:
    plain(fleet)
    fleet.worker()
    ids = sent_plain(fleet, *(f"add.delay({n}, 0)" for n in range(20)))
    assert [value(fleet, id) for id in ids] == list(range(20))
    fleet.all_quiet()
    assert all(len(who) == 1 for who in by(fleet).values())
    assert len(fleet.marks()) == 20


def test_a_plain_worker_can_run_a_guarded_message_and_cannot_say_so_to_the_store(one_fleet: Fleet) -> None:
    """Why workers are deployed before publishers: such a job runs, and runs again with the guard. (Outside G3 and G4.)"""
    fleet = one_fleet
    fleet.environment.update(CELERY_GUARD_SUSPECT_AFTER="500ms")
    old = plain(fleet)
    relay = fleet.relay()
    sent = fleet.app.add.delay(1, 2)
    eventually(lambda: fleet.marks() == ["add 1 2"], what="run by the plain worker")
    assert sent.get(timeout=30) == 3
    assert fleet.state(sent.id) in ("pending", "sent")
    old.terminate()
    fleet.worker()
    assert fleet.settled(sent.id).state.value == "succeeded"
    assert by(fleet)["add 1 2"][-1] == "guard"
    relay.terminate()


def published(fleet: Fleet) -> str:
    """A guarded message in the broker, whose row is gone."""
    sent = fleet.app.add.delay(1, 2)
    fleet.app.guard.relay().drain()
    empty(fleet.environment["CELERY_GUARD_STORE"])
    return str(sent.id)


def test_a_guarded_message_without_a_row_is_adopted_while_it_is_young(one_fleet: Fleet) -> None:
    id = published(one_fleet)
    worker = one_fleet.worker()
    worker.says("the store has no row for this message; it is adopted")
    assert one_fleet.settled(id).state.value == "succeeded"
    assert one_fleet.marks() == ["add 1 2"]


def test_a_guarded_message_without_a_row_is_set_aside_where_it_is_older_than_rows_are_kept(
    one_fleet: Fleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = time.time()
    monkeypatch.setattr("celery_guard.flow.enqueue.time.time", lambda: now - 30 * 86400)
    published(one_fleet)
    monkeypatch.undo()
    one_fleet.worker()
    (found,) = eventually(one_fleet.store.quarantined, what="set aside")
    assert "older than ended jobs are kept" in found.reason
    assert one_fleet.marks() == []


def test_a_worker_does_not_start_with_a_contract_for_a_task_that_is_not_there(one_fleet: Fleet) -> None:
    worker = one_fleet.worker(ready=False, APP_CONTRACTS="shop.ad shop.*")
    assert worker.process.wait(60) != 0
    assert (
        "contracts: found 'shop.ad', expected the name of a task of the app; did you mean 'shop.add'?"
        in worker.output()
    )


@pytest.mark.skipif("pool_start_method" not in NAMESPACES["worker"], reason="this Celery does not spawn")
def test_a_worker_that_spawns_does_not_start_where_its_children_would_run_guarded_tasks_without_the_guard(
    one_fleet: Fleet,
) -> None:
    one_fleet.configure(worker_pool_start_method="spawn")
    worker = one_fleet.worker(ready=False)
    assert worker.process.wait(60) != 0
    assert "let the pool fork" in worker.output()


# -- taking it out ------------------------------------------------------------------------------------------------------


def leave(fleet: Fleet) -> tuple[int, Any]:
    """What ``guard leave`` says: its exit status, and its answer."""
    command = [sys.executable, "-m", "celery", "-A", fleet.module, "guard", "leave", "--json"]
    environment = {**fleet.environment, "CELERY_GUARD_LEAVING": "true"}
    asked = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    return asked.returncode, json.loads(asked.stdout)


def test_while_the_guard_is_taken_out_calls_are_celerys_and_rows_are_run_to_their_end(one_fleet: Fleet) -> None:
    fleet = one_fleet
    waiting = fleet.app.again.apply_async((1,), countdown=2)
    before = fleet.app.flaky.delay()
    guarded = fleet.app.chain(fleet.app.add.s(1, 1), fleet.app.add.s(2))()
    status, said = leave(fleet)
    assert (status, said["unfinished"], said["leaving"]) == (1, 3, True)
    # one process, which runs what is the guard's and what is Celery's in turn
    fleet.worker(concurrency=1, CELERY_GUARD_LEAVING="true")
    assert value(fleet, before.id) == "in the end"
    (again, flaky, chained, chorded) = fleet.says(
        "from tests.integration.app_adoption import *\n"
        "print(m.again.delay(2).id, m.flaky.delay().id, chain(m.add.s(3, 3), m.add.s(20))().id,"
        " chord([m.add.s(n, n) for n in (4, 5)])(m.total.s()).id)",
        CELERY_GUARD_LEAVING="true",
    ).split()
    assert value(fleet, waiting.id) == 1
    assert value(fleet, guarded.id) == 4
    assert [value(fleet, id) for id in (again, flaky, chained, chorded)] == [2, "in the end", 26, 18]
    fleet.all_quiet()
    # what began in the store ended there; what was called since has no row
    assert fleet.state(waiting.id) == fleet.state(guarded.parent.id) == "succeeded"
    assert [fleet.state(id) for id in (again, flaky, chained, chorded)] == [None] * 4
    status, said = leave(fleet)
    assert (status, said["unfinished"]) == (0, 0)
    assert by(fleet)["again 2"] == ["plain"] * 3
    assert by(fleet)["again 1"] == ["guard"] * 2
    assert by(fleet)["flaky"] == ["guard"] * 2 + ["plain"] * 2
    # and then the workers go
    for worker in fleet.workers:
        worker.kill()
    (after,) = sent_plain(fleet, "add.delay(7, 7)")
    plain(fleet)
    assert value(fleet, after) == 14


def test_a_job_of_celerys_whose_process_dies_while_the_guard_is_taken_out_fails_as_celerys_do(one_fleet: Fleet) -> None:
    fleet = one_fleet
    fleet.worker(CELERY_GUARD_LEAVING="true")
    (id,) = sent_plain(fleet, "die.delay()")
    result = fleet.app.app.AsyncResult(id)
    eventually(lambda: result.state == "FAILURE", what="Celery says so")
    assert fleet.state(id) is None


def test_new_publishers_that_leave_are_understood_by_workers_that_do_not(one_fleet: Fleet) -> None:
    fleet = one_fleet
    fleet.worker()
    ids = fleet.says("print(m.add.delay(1, 1).id, m.again.delay(1).id)", CELERY_GUARD_LEAVING="true").split()
    assert [value(fleet, id) for id in ids] == [2, 1]
    assert [fleet.state(id) for id in ids] == ["succeeded"] * 2
