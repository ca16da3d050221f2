"""Connections: what is left on one after an error, and who owns them after a fork."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import text
from sqlalchemy.dialects import mysql
from sqlalchemy.engine import Connection
from sqlalchemy.sql.selectable import Select

from celery_guard.errors import KeyBusy, StoreUnavailableError
from celery_guard.job.tally import Count
from celery_guard.store.patience import Patience
from celery_guard.store.sql import SqlStore
from celery_guard.store.sql.count import fold
from celery_guard.store.sql.statement import Link
from celery_guard.store.sql.statements.count import parts, uncounted
from celery_guard.store.sql.statements.sweep import over
from celery_guard.testing.conformance.builders import new_job
from celery_guard.testing.conformance.moves import eventually, start, taken_ids


class _Interrupted(Exception):
    """As a soft time limit: raised at any moment, and nothing of the database's."""


def _session(store: SqlStore) -> object:
    """What tells the pooled connection from any other one."""
    connection = store._database.engine.raw_connection()
    try:
        return connection.dbapi_connection
    finally:
        connection.close()


def _unfinished(store: SqlStore, error: BaseException, way: str) -> None:
    """Write a job in a transaction that ends with an error."""

    def work(link: Any, again: bool) -> None:
        sql = "INSERT INTO guard_store (id, created) VALUES ('unfinished', 0)"
        if isinstance(link, Connection):
            link.exec_driver_sql(sql)
        else:
            link._cursor.execute(sql)
        raise error

    with pytest.raises(type(error)):
        getattr(store._database, way)(work)


@pytest.mark.parametrize("way", ["whole", "begin"])
@pytest.mark.parametrize(
    "error", [_Interrupted(), KeyboardInterrupt(), ValueError()], ids=lambda error: type(error).__name__
)
def test_nothing_is_left_of_a_transaction_that_ends_with_an_error(
    store: SqlStore, way: str, error: BaseException
) -> None:
    _unfinished(store, error, way)
    with store._database.engine.connect() as connection:
        stores = list(connection.execute(text("SELECT id FROM guard_store")).scalars())
    assert "unfinished" not in stores
    start(store)


def test_a_connection_on_which_work_was_interrupted_is_thrown_away(store: SqlStore) -> None:
    before = _session(store)
    _unfinished(store, _Interrupted(), "whole")
    assert _session(store) is not before


def test_a_connection_on_which_the_database_refused_something_is_kept(store: SqlStore) -> None:
    before = _session(store)

    def collide(link: Link, again: bool) -> None:
        link._cursor.execute("SELECT 1 FROM nowhere")  # type: ignore[attr-defined]

    with pytest.raises(Exception, match="nowhere"):
        store._database.whole(collide)
    assert _session(store) is before
    start(store)


def test_a_repetition_is_told_that_it_is_one(store: SqlStore) -> None:
    told: list[bool] = []

    def work(link: Link, again: bool) -> str:
        told.append(again)
        if len(told) < 3:
            raise KeyBusy("not yet")
        return "done"

    assert store._database.whole(work) == "done"
    assert told == [False, True, True]


def test_idle_connections_that_the_server_has_ended_cost_repetitions_only(store: SqlStore, store_url: str) -> None:
    if store._traits.name == "sqlite":
        pytest.skip("SQLite has no server that could end a session")
    ask, kill = {
        "postgresql": ("SELECT pg_backend_pid()", "SELECT pg_terminate_backend({})"),
        "mysql": ("SELECT connection_id()", "KILL {}"),
    }[store._traits.name]
    job = new_job()
    store.enqueue([job])
    idle = [store._database.engine.connect() for _ in range(3)]
    numbers = [connection.exec_driver_sql(ask).scalar_one() for connection in idle]
    for connection in idle:
        connection.close()
    killer = SqlStore(store_url)
    with killer._database.engine.connect() as connection:
        for number in numbers:
            connection.exec_driver_sql(kill.format(number))
    killer.close()
    assert taken_ids(store) == [job.id]


def test_the_pool_is_the_bound_and_a_full_one_is_unavailable(store_url: str) -> None:
    store = SqlStore(store_url, pool_size=2, pool_timeout=0.01, patience=Patience(tries=2, first=0.001))
    held = [store._database.engine.raw_connection() for _ in range(2)]
    with pytest.raises(StoreUnavailableError):
        store.counts()
    for connection in held:
        connection.close()
    store.upgrade()
    assert store.counts() == {}
    store.close()


_FORK = """
import os, sys
from datetime import timedelta
from pathlib import Path
from celery_guard.job.verdict import Granted
from celery_guard.store.sql import open_store
from celery_guard.testing.conformance.builders import new_job

store = open_store(sys.argv[1])
jobs = [new_job() for _ in range(4)]
store.enqueue(jobs)
store.wait(timedelta(0))

def session():
    with store._database.engine.connect() as connection:
        words = {"postgresql": "SELECT pg_backend_pid()", "mysql": "SELECT connection_id()"}.get(connection.dialect.name)
        return connection.exec_driver_sql(words).scalar() if words else os.getpid()

mine = session()
children = []
for job in jobs[:3]:
    child = os.fork()
    if not child:
        granted = store.claim(job.id, "child", timedelta(minutes=1))
        store.wait(timedelta(0))
        fine = isinstance(granted, Granted) and session() != mine
        store.close()
        os._exit(0 if fine else 1)
    children.append(child)
codes = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]
assert codes == [0, 0, 0], codes
assert session() == mine
assert isinstance(store.claim(jobs[3].id, "parent", timedelta(minutes=1)), Granted)
store.close()
"""


def test_db_1_children_use_no_connection_of_their_parents_and_leave_it_alive(store: SqlStore, store_url: str) -> None:
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", _FORK, store_url], capture_output=True, text=True, timeout=60
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_a_store_in_memory_serves_threads_one_after_the_other() -> None:
    store = SqlStore("sqlite://")
    store.upgrade()
    job = new_job(delay=timedelta(0))
    store.enqueue([job])
    assert taken_ids(store) == [job.id]
    store.close()


def test_a_server_that_cannot_pass_over_locked_rows_is_found_out_once(mariadb_url: str) -> None:
    store = SqlStore(mariadb_url)
    store.upgrade()
    tried: list[bool] = []

    def work(connection: Connection, skip_locked: bool) -> str:
        tried.append(skip_locked)
        if skip_locked:
            connection.exec_driver_sql("SELECT id FROM guard_job FOR UPDATE SKIP WHAT_OLD_SERVERS_DO_NOT_KNOW")
        return "done"

    assert [store._passing_locked(work) for _ in range(3)] == ["done"] * 3
    assert tried == [True, False, False, False]
    store.close()


def test_where_locked_rows_cannot_be_passed_over_they_are_waited_for_and_each_thing_is_added_up_once(
    mariadb_url: str,
) -> None:
    store = SqlStore(mariadb_url)
    store.upgrade()
    store._skip_locked = False
    task = new_job().task
    granted = start(store)
    before = _fenced(store, task)
    store.count(Count.FENCED, [granted.id] * 3)
    waiting = text(
        "SELECT COUNT(*) FROM information_schema.innodb_trx JOIN information_schema.processlist ON id = trx_mysql_thread_id "
        "WHERE db = DATABASE() AND trx_state = 'LOCK WAIT'"
    )
    with ThreadPoolExecutor(1) as pool:

        def first(connection: Connection, again: bool) -> Future[int]:
            fold(connection, 500, skip_locked=False)
            second = pool.submit(store.fold, 500)
            with store._database.engine.connect() as other:

                def it_waits() -> bool:
                    # answered from a cache, which is made anew when nobody has asked for a tenth of a second
                    time.sleep(0.2)
                    return bool(other.execute(waiting).scalar_one())

                eventually(it_waits)
            return second

        store._database.begin(first).result(timeout=60)
    assert _fenced(store, task) - before == 3
    store.close()


def _fenced(store: SqlStore, task: str) -> int:
    return sum(one.total for one in store.counted() if (one.what, one.task) == (Count.FENCED, task))


@pytest.mark.parametrize("select", [over, parts, uncounted])
def test_what_is_deleted_or_added_up_is_locked_where_it_is_read(select: Callable[[int, bool], Select[Any]]) -> None:
    """Otherwise a dead letter that is replayed at that moment would lose its message."""
    assert str(select(5, False).compile(dialect=mysql.dialect())).endswith(" FOR UPDATE")
    assert str(select(5, True).compile(dialect=mysql.dialect())).endswith(" FOR UPDATE SKIP LOCKED")


def test_relays_share_the_work_where_locked_rows_cannot_be_passed_over(store: SqlStore) -> None:
    jobs = [new_job() for _ in range(30)]
    store.enqueue(jobs)
    store._skip_locked = False
    with ThreadPoolExecutor(3) as pool:
        taken = list(pool.map(lambda number: taken_ids(store, token=f"relay-{number}", limit=10), range(3)))
    rest = taken_ids(store, token="relay-9", limit=30)
    found = [id for ids in (*taken, rest) for id in ids]
    assert sorted(found) == sorted(job.id for job in jobs)


def test_on_sqlite_a_body_waits_for_a_writer_as_long_as_the_store_is_patient(tmp_path: Path) -> None:
    with closing(SqlStore(f"sqlite:///{tmp_path / 'guard.db'}")) as store:
        database = store._database
        waits = []
        for engine in (database.engine, database.bodies):
            with engine.connect() as connection:
                waits.append(connection.exec_driver_sql("PRAGMA busy_timeout").scalar())
        assert waits == [5000, database.patience.seconds * 1000]
