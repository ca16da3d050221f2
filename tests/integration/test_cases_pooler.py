"""DB-3: the store behind a PgBouncer that pools transactions, with two sessions of the server's for everybody.

A client has another session with each transaction, so whatever is left on one is somebody else's. Nothing is left: what is held is rows
with a lease, or locks of a transaction.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from functools import partial
from typing import Any

import psycopg
import pytest
from sqlalchemy import create_engine, text
from sqlalchemy.orm import Session
from sqlalchemy.pool import NullPool

from celery_guard.job.row import NewJob
from celery_guard.job.verdict import Accepted, Busy, Granted, Leased
from celery_guard.store import open_store
from celery_guard.store.protocol import Store
from celery_guard.testing.conformance.builders import LONG, keyed, new_job
from celery_guard.testing.conformance.moves import lease_of, taken_ids
from celery_guard.testing.databases import database
from celery_guard.testing.servers import private_pgbouncer
from celery_guard.testing.services import POSTGRESQL

from .fleet import Fleet, eventually

pytestmark = pytest.mark.integration

APP = "tests.integration.app_outbox"

#: What differs from the server's own settings on a session, what it listens to, and what it has prepared.
_LEFT = """
    SELECT 'setting', name FROM pg_settings WHERE source = 'session' AND setting IS DISTINCT FROM reset_val
    UNION ALL SELECT 'channel', pg_listening_channels()
    UNION ALL SELECT 'prepared', statement FROM pg_prepared_statements
    UNION ALL SELECT 'lock', objid::text FROM pg_locks WHERE locktype = 'advisory' AND pid = pg_backend_pid()
"""


@pytest.fixture
def direct() -> Iterator[str]:
    """A database of this test's own."""
    with database(POSTGRESQL.need()) as url:
        yield url


@pytest.fixture
def pooled(direct: str) -> Iterator[str]:
    """The same database through the pooler."""
    with private_pgbouncer(direct, size=2) as pooler:
        yield pooler.start().url


@pytest.fixture
def store(pooled: str) -> Iterator[Store]:
    opened = open_store(pooled)
    opened.upgrade()
    yield opened
    opened.close()


def _psycopg(url: str) -> Any:
    return psycopg.connect(url.replace("+psycopg", ""), prepare_threshold=None)


def left_behind(pooled: str) -> list[tuple[str, str]]:
    """What is left on the pooler's two sessions: both looked at, since each is held while the other is asked for."""
    with _psycopg(pooled) as one, _psycopg(pooled) as other:
        sessions = {each.execute("SELECT pg_backend_pid()").fetchone() for each in (one, other)}
        assert len(sessions) == 2
        return [found for each in (one, other) for found in each.execute(_LEFT).fetchall()]


@pytest.fixture
def fleet(direct: str, pooled: str, make_fleet: Callable[..., Fleet]) -> Iterator[Fleet]:
    """Workers, relays and callers that all go through the pooler."""
    made = make_fleet("redis-postgresql", APP, own_store=direct)
    made.environment["CELERY_GUARD_STORE"] = pooled
    with _psycopg(pooled) as connection:
        connection.execute("CREATE TABLE shop_order (id INTEGER PRIMARY KEY)")
    yield made
    for worker in made.workers:
        worker.kill()
    made.store.close()


def test_db_3_the_main_line_runs_through_a_transaction_pooler_and_leaves_nothing_on_its_sessions(
    fleet: Fleet, pooled: str
) -> None:
    app = fleet.app
    engine = create_engine(pooled, poolclass=NullPool, connect_args={"prepare_threshold": None})
    accepted = []
    for number in range(30):
        with Session(engine) as session, session.begin(), app.guard.using(session):
            session.execute(text("INSERT INTO shop_order (id) VALUES (:id)"), {"id": number})
            accepted.append(app.look_up.delay(number).id)
    with Session(engine) as session, app.guard.using(session):
        app.look_up.delay(1000)
        session.rollback()
    worker = fleet.worker(concurrency=4)
    accepted += [app.note.delay(number).id for number in range(30)]
    last = app.chain(app.add.s(1, 2), app.add.s(3)).delay()
    assert last.get(timeout=60) == 6
    assert app.add.delay(2, 3).get(timeout=60) == 5
    fleet.all_quiet(60)
    assert {fleet.state(id) for id in accepted} == {"succeeded"}
    assert fleet.counted()["order 1000 missing"] == 0
    assert all(fleet.counted()[f"order {number} found"] == 1 for number in range(30))
    assert "behind a connection pooler: it is polled" in worker.output()
    assert "Traceback" not in worker.output()
    assert worker.terminate() == 0
    assert left_behind(pooled) == []


def test_db_3_a_wait_behind_a_pooler_ends_with_its_time_and_listens_on_no_session(store: Store, pooled: str) -> None:
    other = open_store(pooled)
    assert other.wait(timedelta(milliseconds=5)) is False
    store.enqueue([new_job()])
    assert other.wait(timedelta(milliseconds=5)) is False
    other.enqueue([new_job()])
    assert other.wait(timedelta(seconds=30)) is True
    other.close()
    assert left_behind(pooled) == []


def test_db_3_two_upgrades_at_once_through_the_pooler_leave_no_lock(pooled: str) -> None:
    stores = [open_store(pooled) for _ in range(2)]
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(lambda each: each.upgrade(), stores))
    for each in stores:
        each.check()
        each.close()
    assert left_behind(pooled) == []


def test_db_3_one_live_attempt_a_job_through_the_pooler(store: Store, pooled: str) -> None:
    """Ten at once for one job, on two sessions: one is granted it; and a claim outlives the transaction that made it."""
    jobs = [new_job() for _ in range(20)]
    store.enqueue(jobs)
    taken_ids(store)
    others = [open_store(pooled) for _ in range(5)]
    with ThreadPoolExecutor(10) as pool:
        for job in jobs:
            verdicts = list(pool.map(lambda each, id=job.id: each.claim(id, "me", LONG), others * 2))
            [granted] = [verdict for verdict in verdicts if isinstance(verdict, Granted)]
            assert all(isinstance(verdict, (Granted, Leased)) for verdict in verdicts)
            assert others[0].renew([lease_of(granted)], LONG)
    for each in others:
        each.close()
    assert left_behind(pooled) == []


def test_db_3_a_key_is_held_by_the_transaction_not_by_the_session(fleet: Fleet, pooled: str) -> None:
    """The lock of a first enqueue ends with its transaction, wherever the sessions go next; also when its client is gone."""
    store = fleet.store
    engine = create_engine(pooled, poolclass=NullPool, connect_args={"prepare_threshold": None})
    for number, end in enumerate(("rollback", "hang up")):
        first, twin = keyed(f"order {number}"), keyed(f"order {number}")
        connection = engine.connect()
        connection.begin()
        assert store.door(connection).enqueue([first]) == [Accepted(first.id)]
        assert store.enqueue([twin]) == [Busy(twin.id)]
        if end == "rollback":
            connection.rollback()
        connection.invalidate()  # hangs up
        connection.close()
        eventually(partial(_accepts, store, twin))
    assert left_behind(pooled) == []


def _accepts(store: Store, job: NewJob) -> bool:
    return store.enqueue([job]) == [Accepted(job.id)]


def test_db_3_who_dies_while_holding_something_leaves_nothing_held(fleet: Fleet, pooled: str) -> None:
    """A body in the middle of its transaction, and a relay in its slot: the job is run again, another relay takes over."""
    relay = fleet.relay()
    eventually(lambda: any(beat.name.startswith("relay:") for beat in fleet.store.heartbeats()))
    worker = fleet.worker(concurrency=2, CELERY_GUARD_RELAY="no")
    result = fleet.app.dies_in_its_transaction.delay()
    eventually(lambda: fleet.counted()["in its transaction"] == 1)
    relay.kill()
    fleet.relay()
    job = fleet.settled(result.id, 60)
    assert (job.state.value, job.attempts, job.crashes) == ("succeeded", 2, 1)
    with _psycopg(pooled) as connection:
        assert connection.execute("SELECT id FROM shop_order").fetchall() == [(7,)]
    assert worker.terminate() == 0
    assert left_behind(pooled) == []
