"""The store's databases under workers: DB-1 (forks), DB-2 (connections that close, transactions that are given up, restarts).

DB-4 is in ``test_cases_contention.py``. What each operation does when its connection is cut at any point is in the conformance suite.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import closing

import pytest
import redis
from sqlalchemy import Engine, text
from sqlalchemy.orm import Session

from celery_guard.errors import StoreUnavailableError
from celery_guard.testing.databases import database
from celery_guard.testing.servers import private_postgresql
from celery_guard.testing.services import MARIADB, POSTGRESQL, REDIS

from .fleet import Fleet, eventually

pytestmark = pytest.mark.integration

APP = "tests.integration.app_outbox"
BOTH = ("redis-postgresql", "redis-mariadb")
EACH = (*BOTH, "redis-redis")


def _numbered() -> str:
    return f"{REDIS.need()}3"


@pytest.fixture
def fleet(request: pytest.FixtureRequest, make_fleet: Callable[..., Fleet]) -> Iterator[Fleet]:
    """A fleet with a database of this test's own, since its sessions are going to be closed, whoever's they are."""
    stack = getattr(request, "param", "redis-postgresql")
    servers = {"postgresql": POSTGRESQL.need, "mariadb": MARIADB.need, "redis": _numbered}
    with database(servers[stack.partition("-")[2]]()) as url:
        named = f"{url}&client_name={url.rpartition('=')[2]}" if url.startswith("redis") else url
        made = make_fleet(stack, APP, own_store=named)
        yield made
        for worker in made.workers:
            worker.kill()
        made.store.close()


def orders(shop: Engine) -> list[int]:
    with shop.connect() as connection:
        return list(connection.execute(text("SELECT id FROM shop_order ORDER BY id")).scalars())


def goes_on(fleet: Fleet) -> None:
    """The next job on that worker runs as if nothing had been."""
    settled = fleet.settled(fleet.app.note.delay("next").id)
    assert (settled.state.value, settled.attempts) == ("succeeded", 1)


# -- forks --------------------------------------------------------------------------------------------------------------


def sessions(fleet: Fleet) -> dict[int, set[int]]:
    """The server's sessions that each process has used."""
    used = defaultdict(set)
    for mark in fleet.marks():
        if mark.startswith("session"):
            _, process, session = mark.split()
            used[int(process)].add(int(session))
    return used


@pytest.mark.parametrize("fleet", ["redis-postgresql", "redis-redis"], indirect=True)
def test_db_1_no_process_uses_a_connection_of_another(fleet: Fleet) -> None:
    """The main process uses the store, then its children are born, recycled and fork themselves; 200 jobs run meanwhile."""
    ids = [handle.id for handle in fleet.app.add.enqueue_many([[number, 0] for number in range(200)])]
    forking = [handle.id for handle in fleet.app.forks.enqueue_many([[]] * 5)]
    worker = fleet.worker("prefork", 4, "--max-tasks-per-child=10", APP_SESSIONS="1", APP_PARENT_TOO="1")
    fleet.all_quiet(60)
    assert worker.terminate() == 0
    assert {state.value: count for state, count in fleet.store.counts().items()} == {"succeeded": 210}
    assert [int(stored(fleet, id)) for id in ids] == list(range(200))
    assert fleet.counted()["forks 0"] == len(forking)

    used = sessions(fleet)
    assert len(used) > 20, "the children were not recycled"
    everywhere = [session for each in used.values() for session in each]
    assert len(everywhere) == len(set(everywhere)), "a connection was used by two processes"
    parent = worker.process.pid
    assert fleet.counted()[f"parent {parent}"] == 2
    # what it does at boot, it does on a connection that it closes before any child is born
    *boot, ready, ending = [mark for mark in fleet.marks() if mark.startswith(f"session {parent} ")]
    assert ready == ending not in boot, "a child closed the connection of its parent"


def stored(fleet: Fleet, id: str) -> bytes:
    outcome = fleet.store.outcome(id)
    assert outcome is not None
    assert outcome[1] is not None
    return outcome[1].body


def test_db_1_what_a_worker_checks_at_boot_leaves_no_connection_open(fleet: Fleet, shop: Engine) -> None:
    """Every child would inherit it. Without the relay, which is a process of its own, the worker has none until a job comes."""
    url = f"{fleet.environment['CELERY_GUARD_STORE']}?application_name=worker"
    worker = fleet.worker(CELERY_GUARD_RELAY="no", CELERY_GUARD_STORE=url, APP_SESSIONS="1")
    checked = sessions(fleet)[worker.process.pid]
    assert len(checked) == 1
    named = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'worker'"
    with shop.connect() as connection:
        assert connection.scalar(text(named)) == 0


@pytest.mark.parametrize("fleet", ["redis-redis"], indirect=True)
def test_db_1_what_a_worker_checks_at_boot_leaves_no_connection_to_redis_open(fleet: Fleet) -> None:
    url = fleet.environment["CELERY_GUARD_STORE"].replace("client_name=", "client_name=worker-")
    worker = fleet.worker(CELERY_GUARD_RELAY="no", CELERY_GUARD_STORE=url, APP_SESSIONS="1")
    assert len(sessions(fleet)[worker.process.pid]) == 1
    with closing(redis.Redis(host=REDIS.address[0], port=REDIS.address[1])) as client:
        named = [session["name"] for session in client.client_list()]
    assert url.rpartition("=")[2] not in named


# -- connections that the server closes -----------------------------------------------------------------------------------


@pytest.mark.parametrize("fleet", EACH, indirect=True)
def test_db_2_i_an_end_is_written_on_a_fresh_connection_when_the_server_hung_up_meanwhile(fleet: Fleet) -> None:
    worker = fleet.worker(concurrency=1)
    result = fleet.app.hung_up_on.delay("once")
    assert result.get(timeout=30) == "once"
    assert fleet.settled(result.id).attempts == 1
    goes_on(fleet)
    assert fleet.counted() == {"hung up once": 1, "note next": 1}
    assert "the relay died" not in worker.output()


@pytest.mark.parametrize("fleet", EACH, indirect=True)
def test_db_2_ii_a_job_that_comes_after_the_server_hung_up_on_an_idle_worker_runs_once(fleet: Fleet) -> None:
    worker = fleet.worker(concurrency=1)
    fleet.settled(fleet.app.note.delay("before the night").id)
    fleet.app.hang_up_on_everybody()
    goes_on(fleet)
    assert fleet.counted() == {"note before the night": 1, "note next": 1}
    assert not re.search("Traceback|the relay died", worker.output())


def test_db_2_i_writes_of_a_body_whose_connection_was_closed_are_undone_and_it_runs_again(
    fleet: Fleet, shop: Engine
) -> None:
    """Its end could not be written with them, so the job is unfinished: neither a success nor a failure."""
    fleet.worker(concurrency=1)
    job = fleet.settled(fleet.app.hung_up_on_inside.delay().id)
    assert (job.state.value, job.attempts, job.crashes) == ("succeeded", 2, 1)
    assert orders(shop) == [7]
    assert fleet.counted() == {"writes": 2}
    goes_on(fleet)


# -- transactions that the database has given up --------------------------------------------------------------------------


def test_db_2_iii_a_session_that_a_body_leaves_broken_hinders_nothing_and_nothing_commits_it(
    fleet: Fleet, shop: Engine
) -> None:
    fleet.worker(concurrency=1)
    job = fleet.settled(fleet.app.poisons_own_session.delay().id)
    assert (job.state.value, job.attempts) == ("succeeded", 1)
    goes_on(fleet)
    assert orders(shop) == []


def test_db_2_iii_a_body_that_broke_the_transaction_of_its_job_has_failed(fleet: Fleet, shop: Engine) -> None:
    fleet.worker(concurrency=1)
    job = fleet.settled(fleet.app.poisons_its_transaction.delay().id)
    assert (job.state.value, job.reason.value, job.attempts) == ("dead", "failed", 1)
    goes_on(fleet)
    assert orders(shop) == []


# -- a database that restarts ---------------------------------------------------------------------------------------------


def test_db_2_iv_a_database_that_dies_under_load_and_comes_back_loses_and_repeats_nothing(
    make_fleet: Callable[..., Fleet],
) -> None:
    """Bodies that end while it is away have their end written when it is back, since their leases are long enough. Messages that come
    meanwhile stay with the broker or are sent again, with early and with late acks; no body starts without its claim."""
    with private_postgresql() as server:
        server.start()
        fleet = make_fleet("redis-postgresql", APP, own_store=server.url)
        held = [fleet.app.wait_for.delay(f"go {n}").id for n in range(2)]
        workers = [fleet.worker(concurrency=2, CELERY_GUARD_LEASE="60s") for _ in range(2)]
        for id in held:
            fleet.until(id, "running")
        with Session(fleet.app.shop()) as session, session.begin(), fleet.app.guard.using(session):
            tasks = (fleet.app.note, fleet.app.late_note)
            accepted = [task.delay(n).id for n in range(100) for task in tasks]
        eventually(lambda: len(fleet.marks()) > 50)
        server.kill()
        for n in range(2):
            fleet.raise_flag(f"go {n}")
        with pytest.raises(StoreUnavailableError):
            fleet.app.note.delay("not accepted")
        for worker in workers:
            eventually(lambda worker=worker: worker.output().count("could not reach the store") >= 3)  # type: ignore[misc]
        server.start()
        for id in (*held, *accepted):
            job = fleet.settled(id, seconds=60)
            assert job.state.value == "succeeded"
            assert job.attempts == 1, f"{job.task} ran again"
        ran = {f"{what} {n}": 1 for what in ("note", "late note") for n in range(100)}
        assert fleet.counted() == {"wait_for": 2, "wait_for done": 2, **ran}
        assert not any("the relay died" in worker.output() for worker in workers)
        goes_on(fleet)
