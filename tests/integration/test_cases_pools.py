"""The same promises in every pool, and a word at boot where a pool lacks what one of them rests on."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from importlib.util import find_spec
from typing import Any
from urllib.parse import urlencode

import pytest
from celery import __version__ as celery_version
from celery.app.defaults import NAMESPACES
from sqlalchemy import create_engine, text
from sqlalchemy.engine import Engine

from .fleet import Fleet, Worker, eventually

pytestmark = pytest.mark.integration

MODULE = "tests.integration.app_pools"

HAS_SPAWN = "pool_start_method" in NAMESPACES["worker"]
HAS_SOFT_SHUTDOWN = "soft_shutdown_timeout" in NAMESPACES["worker"]

_spawn = pytest.param(
    "spawn", marks=pytest.mark.skipif(not HAS_SPAWN, reason=f"Celery {celery_version} does not spawn")
)
_eventlet = pytest.param(
    "eventlet", marks=pytest.mark.skipif(find_spec("eventlet") is None, reason="eventlet is not installed")
)

#: Every pool there is. ``spawn`` is prefork with children that are started anew.
POOLS = ["prefork", _spawn, "threads", "solo", "gevent", _eventlet]
CONCURRENT = ["prefork", _spawn, "threads", "gevent", _eventlet]


@pytest.fixture
def database(postgresql_url: str) -> Iterator[Engine]:
    """The store's database, as its server sees it."""
    engine = create_engine(postgresql_url)
    yield engine
    engine.dispose()


@pytest.fixture
def fleet(make_fleet: Callable[..., Fleet]) -> Fleet:
    return make_fleet("redis-postgresql", MODULE)


def worker_of(fleet: Fleet, pool: str, concurrency: int, *more: str, **env: Any) -> Worker:
    """A worker with this pool. A relay of its own runs in it, as ever."""
    if pool != "spawn":
        return fleet.worker(pool, concurrency, *more, **env)
    fleet.configure(worker_pool_start_method="spawn")
    return fleet.worker("prefork", concurrency, *more, **env)


# -- the same everywhere ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("pool", POOLS)
def test_pool_1_a_job_goes_its_way_in_every_pool(fleet: Fleet, pool: str) -> None:
    """Claim, retry, failure, a chain, a lease that is renewed while the body waits for longer than it, and a cancel."""
    app = fleet.app
    worker = worker_of(fleet, pool, 4)
    good = app.chain(app.add.s(1, 2), app.add.s(3)).delay()
    again = app.flaky.delay(1)
    bad = app.fails.delay("why")
    long = app.waits.delay(5)  # the lease is 2 s
    assert good.get(timeout=60) == 6
    assert again.get(timeout=60) == "after 2"
    with pytest.raises(ValueError, match="why"):
        bad.get(timeout=60)
    assert long.get(timeout=60) == 1
    stopped = app.wait_for.delay("never")
    fleet.until(stopped.id, "running")
    assert fleet.store.cancel(stopped.id).answer == "asked"
    assert fleet.settled(stopped.id).state.value == "cancelled"
    fleet.all_quiet()
    assert fleet.counted() == {"add": 2, "flaky": 2, "fails": 1, "waits": 1, "wait_for": 1}
    assert worker.terminate() == 0


@pytest.mark.parametrize("pool", CONCURRENT)
def test_pool_1_what_a_job_knows_of_itself_is_kept_for_the_job_and_connections_are_bounded(
    fleet: Fleet, pool: str, postgresql_url: str, database: Engine
) -> None:
    """500 jobs, eight at a time. A process may have one connection a body and four more, and one child has five."""
    fleet.relay()
    named = f"{postgresql_url}{'&' if '?' in postgresql_url else '?'}{urlencode({'application_name': pool})}"
    worker = worker_of(fleet, pool, 8, CELERY_GUARD_RELAY="false", CELERY_GUARD_STORE=named)
    results = fleet.app.who.enqueue_many([[0.02]] * 500)
    seen = [0]
    with database.connect() as connection:

        def done() -> bool:
            count = text("SELECT count(*) FROM pg_stat_activity WHERE application_name = :name")
            seen.append(connection.execute(count, {"name": pool}).scalar_one())
            return fleet.counted()["who"] >= 500

        eventually(done, 100, "500 jobs")
    fleet.all_quiet()
    assert all(result.get(timeout=30) for result in results)
    assert fleet.counted() == {"who": 500}
    assert max(seen) <= (8 + 1) * 5 if pool in ("prefork", "spawn") else 8 + 4
    assert worker.terminate() == 0


@pytest.mark.parametrize("pool", POOLS)
def test_pool_1_a_warm_shutdown_lets_the_running_job_finish_and_loses_no_other(fleet: Fleet, pool: str) -> None:
    app = fleet.app
    worker = worker_of(fleet, pool, 1)
    running = app.holds.delay("on")
    eventually(lambda: "holds" in fleet.marks())
    others = [app.add.delay(number, 1) for number in range(5)]
    fleet.until(others[0].id, "sent")
    worker.process.send_signal(signal.SIGTERM)
    worker.says("Warm shutdown")
    fleet.raise_flag("on")
    assert worker.terminate(60) == 0
    assert running.get(timeout=30) == "on"
    fleet.worker("threads", 2)
    assert [other.get(timeout=60) for other in others] == [1, 2, 3, 4, 5]
    fleet.all_quiet()
    assert fleet.counted() == {"holds": 1, "held": 1, "add": 5}


@pytest.mark.parametrize("pool", ["prefork", "gevent"])
def test_pool_1_a_pool_that_grows_runs_each_job_once(fleet: Fleet, pool: str) -> None:
    app = fleet.app
    worker = worker_of(fleet, pool, 1, "--autoscale", "4,1")
    results = [app.holds.delay("on") for _ in range(4)]
    eventually(lambda: fleet.counted()["holds"] == 4, 60, "four at a time")
    fleet.raise_flag("on")
    assert [result.get(timeout=60) for result in results] == ["on"] * 4
    fleet.all_quiet()
    assert fleet.counted() == {"holds": 4, "held": 4}
    assert worker.terminate() == 0


@pytest.mark.parametrize("limit", ["--max-tasks-per-child", "--max-memory-per-child"])
def test_pool_1_children_that_are_replaced_after_each_job_run_each_once(fleet: Fleet, limit: str) -> None:
    """The second limit is in KiB: any child is over it after its first job."""
    app = fleet.app
    worker = worker_of(fleet, "prefork", 2, limit, "1")
    results = [app.add.delay(number, 1) for number in range(20)]
    assert [result.get(timeout=100) for result in results] == [number + 1 for number in range(20)]
    fleet.all_quiet()
    assert fleet.counted() == {"add": 20}
    assert worker.terminate() == 0


@pytest.mark.smoke
@pytest.mark.skipif(not HAS_SOFT_SHUTDOWN, reason=f"Celery {celery_version} has no soft shutdown")
@pytest.mark.parametrize("pool", ["prefork", "threads", "gevent"])
def test_pool_1_a_job_that_is_ended_by_a_soft_shutdown_is_run_by_another_worker(
    make_fleet: Callable[..., Fleet], pool: str
) -> None:
    fleet = make_fleet("redis-postgresql", MODULE, worker_soft_shutdown_timeout=1)
    app = fleet.app
    worker = worker_of(fleet, pool, 1)
    running = app.holds.delay("on")
    eventually(lambda: "holds" in fleet.marks())
    worker.process.send_signal(signal.SIGQUIT)
    worker.says("Initiating Soft Shutdown")
    if pool == "prefork":
        worker.process.wait(60)
    else:
        # nobody can end a thread, and gevent may not wait in the handler of a signal, as Celery does: the orchestrator kills
        worker.kill()
    fleet.worker("threads", 1)
    eventually(lambda: fleet.counted()["holds"] == 2)
    fleet.raise_flag("on")
    assert running.get(timeout=60) == "on"
    fleet.all_quiet()
    assert fleet.counted() == {"holds": 2, "held": 1}
    job = fleet.job(running.id)
    assert (job.attempts, job.crashes) == ((1, 0) if pool == "prefork" else (2, 1))


# -- where pools differ ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("pool", POOLS)
def test_pool_1_an_attempt_over_its_limit_ends_the_job_whether_or_not_the_pool_can_end_the_body(
    fleet: Fleet, pool: str
) -> None:
    fleet.environment["APP_LIMIT"] = "8" if pool == "spawn" else "1"
    fleet.relay()
    worker = worker_of(fleet, pool, 1, CELERY_GUARD_RELAY="false")
    # the pool counts from the hand-over, also while a spawned child is on its way up
    assert fleet.app.add.delay(1, 1).get(timeout=60) == 2
    result = fleet.app.overtime.delay("late")
    job = fleet.settled(result.id, 60)
    assert (job.state.value, job.attempts, job.crashes) == ("dead", 1, 0)
    assert job.reason.value == "time_limit"
    assert ("CHECK-201" in worker.output()) == (pool not in ("prefork", "spawn"))
    fleet.raise_flag("late")
    fleet.all_quiet()
    ends = pool in ("prefork", "spawn", "gevent")
    if not ends:
        eventually(lambda: "overtime done" in fleet.marks())
    assert fleet.job(result.id).state.value == "dead"
    assert fleet.counted() == {"add": 1, "overtime": 1, **({} if ends else {"overtime done": 1})}


@pytest.mark.parametrize("native", [False, True], ids=["computes", "sleeps in C"])
@pytest.mark.parametrize("pool", ["gevent", _eventlet])
def test_pool_1_a_body_that_never_waits_loses_its_job_to_another_worker_and_its_outcome_is_refused(
    fleet: Fleet, pool: str, native: bool
) -> None:
    fleet.relay()
    green = worker_of(fleet, pool, 2, CELERY_GUARD_RELAY="false")
    assert "CHECK-203" in green.output()
    result = fleet.app.computes.delay("over", native)
    eventually(lambda: "computes" in fleet.marks())
    fleet.worker("threads", 1, CELERY_GUARD_RELAY="false")
    assert result.get(timeout=60) == "second"
    green.says("is not the owner any more")
    fleet.all_quiet()
    job = fleet.job(result.id)
    assert (job.state.value, job.attempts, job.crashes) == ("succeeded", 2, 1)
    assert fleet.counted() == {"computes": 2, "computed": 1}


@pytest.mark.parametrize("pool", ["prefork", "threads", "solo"])
def test_pool_1_a_body_that_never_waits_keeps_its_lease_where_something_else_renews_it(
    fleet: Fleet, pool: str, database: Engine
) -> None:
    worker_of(fleet, pool, 2)
    assert fleet.app.add.delay(1, 1).get(timeout=60) == 2
    result = fleet.app.computes.delay("over")
    eventually(lambda: "computes" in fleet.marks())
    first = fleet.job(result.id)
    assert first.started is not None
    over = first.started + timedelta(seconds=6)
    eventually(lambda: _now(database) > over, 60, "three leases long")
    fleet.raise_flag("over")
    assert result.get(timeout=60) == "first"
    job = fleet.job(result.id)
    assert (job.attempts, job.fence) == (1, first.fence)


def _now(database: Engine) -> datetime:
    """The store's clock."""
    with database.connect() as connection:
        now: datetime = connection.execute(text("SELECT now()")).scalar_one()
    return now


@pytest.mark.parametrize("pool", ["threads", "solo", "gevent", _eventlet])
def test_pool_1_a_pool_that_cannot_raise_a_soft_limit_says_so_at_boot(fleet: Fleet, pool: str) -> None:
    worker = worker_of(fleet, pool, 1)
    assert "CHECK-202" in worker.output()
    result = fleet.app.asks.delay("on")
    eventually(lambda: "asks" in fleet.marks())
    fleet.raise_flag("on")
    assert result.get(timeout=60) == "on"
