"""Doors, as far as they are SQLAlchemy's and the drivers'; what goes through them is the conformance suite's."""

from __future__ import annotations

import gc
import re
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Engine, create_engine, event, text
from sqlalchemy.exc import InternalError, ProgrammingError
from sqlalchemy.ext.asyncio import AsyncSession
from sqlalchemy.orm import Session, scoped_session, sessionmaker

from celery_guard.errors import WrongDatabaseError
from celery_guard.job.state import State
from celery_guard.job.verdict import Accepted, Busy, Conflict, Duplicate
from celery_guard.store.sql import SqlStore
from celery_guard.store.sql.statements.accept import KEYS_TRIED, RESTS
from celery_guard.testing.conformance.builders import keyed, new_job, succeeded
from celery_guard.testing.conformance.moves import eventually, start, taken_ids


@pytest.fixture
def engine(store: SqlStore) -> Iterator[Engine]:
    """An engine of the caller's on the store's database."""
    made = create_engine(store._database.url)
    yield made
    made.dispose()


def test_a_scoped_session_is_a_session(store: SqlStore, engine: Engine) -> None:
    job, sessions = new_job(), scoped_session(sessionmaker(engine))
    assert store.door(sessions).enqueue([job]) == [Accepted(job.id)]
    sessions.commit()
    sessions.remove()
    assert taken_ids(store) == [job.id]


def test_whose_database_it_is_is_asked_once_an_engine(store: SqlStore, engine: Engine) -> None:
    asked: list[str] = []

    @event.listens_for(engine, "before_cursor_execute")
    def note(connection: Any, cursor: Any, sql: str, *others: Any) -> None:
        if "guard_store" in sql and "INSERT" not in sql:
            asked.append(sql)

    for _ in range(3):
        with engine.execution_options(logging_token="web").begin() as connection:
            store.door(connection).enqueue([new_job()])
    assert len(asked) == 1


def test_a_key_that_is_held_costs_the_callers_connection_no_error(store: SqlStore, engine: Engine) -> None:
    errors: list[object] = []
    event.listen(engine, "handle_error", errors.append)
    store.enqueue([keyed("order")])
    with engine.begin() as connection:
        [answer] = store.door(connection).enqueue([keyed("order")])
    assert isinstance(answer, Duplicate)
    assert errors == []


def test_an_attempt_can_be_settled_in_the_callers_transaction(store: SqlStore, engine: Engine) -> None:
    granted = start(store)
    with engine.connect() as connection:
        assert store.door(connection).settle(succeeded(granted))
        connection.rollback()
        assert store.door(connection).settle(succeeded(granted))
        connection.commit()
        assert store.door(connection).settle(succeeded(granted)) is False


@pytest.mark.parametrize("thing", [None, "postgresql:///shop", object()])
def test_what_is_no_transaction_is_refused(embedded: SqlStore, thing: object) -> None:
    with pytest.raises(TypeError, match="Session or a Connection"):
        embedded.door(thing)


def test_an_asynchronous_session_of_no_single_database_is_shown_the_way(embedded: SqlStore) -> None:
    with pytest.raises(WrongDatabaseError, match="bind_arguments"):
        embedded.door(AsyncSession())


def test_a_session_of_no_single_database_is_shown_the_way(embedded: SqlStore) -> None:
    with Session() as session, pytest.raises(WrongDatabaseError, match="bind_arguments"):
        embedded.door(session)


def test_another_database_is_looked_at_again_each_time(embedded: SqlStore, tmp_path: Path) -> None:
    other = create_engine(f"sqlite:///{tmp_path / 'other.db'}")
    with other.connect() as connection:
        for _ in range(2):
            with pytest.raises(WrongDatabaseError, match="no store's tables"):
                embedded.door(connection)
    other.dispose()


def test_what_the_database_says_about_the_callers_transaction_reaches_the_caller_unchanged(
    store: SqlStore, engine: Engine
) -> None:
    if store._traits.name != "postgresql":
        pytest.skip("only PostgreSQL refuses a transaction after its first error")
    with engine.connect() as connection:
        with pytest.raises(ProgrammingError):
            connection.exec_driver_sql("SELECT nothing")
        with pytest.raises(InternalError, match="aborted"):
            store.door(connection).enqueue([new_job()])


@pytest.mark.parametrize("batch", [1, 60], ids=["one by one", "in batches"])
def test_a_transaction_takes_any_number_of_keys_with_a_few_locks(store: SqlStore, engine: Engine, batch: int) -> None:
    if store._traits.name != "postgresql":
        pytest.skip("only PostgreSQL asks by a lock who is taking a key")
    jobs = [keyed(f"order {number}") for number in range(3 * batch + KEYS_TRIED)]
    with engine.begin() as connection:
        for first in range(0, len(jobs), batch):
            assert {type(answer) for answer in store.door(connection).enqueue(jobs[first : first + batch])} == {
                Accepted
            }
        locks = text("SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND pid = pg_backend_pid()")
        assert connection.execute(locks).scalar() == KEYS_TRIED + len(RESTS)
    with engine.begin() as connection:
        store.door(connection).enqueue([keyed("counted anew")])
        assert connection.execute(locks).scalar() == 1 + len(RESTS)


def test_a_key_that_another_transaction_takes_is_busy_at_once_in_a_batch_of_any_size(
    store: SqlStore, engine: Engine
) -> None:
    if store._traits.name != "postgresql":
        pytest.skip("only PostgreSQL asks by a lock who is taking a key")
    jobs = sorted((keyed(f"order {number}") for number in range(2 * KEYS_TRIED)), key=lambda job: job.key or "")
    taken = replace(jobs[3], id=f"{jobs[3].id}-twin")
    with engine.connect() as other, engine.connect() as connection:
        assert store.door(other).enqueue([taken]) == [Accepted(taken.id)]
        answers = store.door(connection).enqueue(jobs)
        assert answers[3] == Busy(jobs[3].id)
        assert {type(answer) for place, answer in enumerate(answers) if place != 3} == {Accepted}


def test_a_key_beyond_those_that_are_tried_is_waited_for(store: SqlStore, engine: Engine) -> None:
    if store._traits.name != "postgresql":
        pytest.skip("only PostgreSQL asks by a lock who is taking a key")
    jobs = [keyed(f"order {number:03}") for number in range(KEYS_TRIED + 1)]
    last = max(jobs, key=lambda job: job.key or "")
    twin = replace(last, id=f"{last.id}-twin")
    with engine.begin() as connection, ThreadPoolExecutor(1) as others:
        assert {type(answer) for answer in store.door(connection).enqueue(jobs)} == {Accepted}
        waiting = others.submit(store.enqueue, [twin])
        blocked = text("SELECT count(*) FROM pg_locks WHERE NOT granted AND locktype = 'transactionid'")
        with engine.connect() as watching:
            eventually(lambda: watching.execute(blocked).scalar() and True)
        connection.commit()
        assert waiting.result(30) == [Duplicate(twin.id, last.id, State.PENDING)]


class _Formatted:
    """A cursor that takes ``%s``, whatever its driver takes, as Django's do."""

    def __init__(self, cursor: Any, translate: Callable[[str], str]) -> None:
        self._cursor = cursor
        self._translate = translate

    @property
    def rowcount(self) -> int:
        return int(self._cursor.rowcount)

    def execute(self, sql: str, parameters: Sequence[Any]) -> None:
        self._cursor.execute(self._translate(sql), parameters)

    def fetchall(self) -> Sequence[Any]:
        return list(self._cursor.fetchall())


def _qmark(sql: str) -> str:
    return re.sub("(?<!%)%s", "?", sql).replace("%%", "%")


def test_a_cursor_of_another_library_is_a_door(store: SqlStore, engine: Engine) -> None:
    plain: Any
    with closing(engine.raw_connection()) as connection:
        plain = connection.cursor()
        cursor = _Formatted(plain, _qmark if store._traits.name == "sqlite" else str)
        first, percent = keyed("order"), new_job(task="shop.100%s")
        assert store.cursor_door(cursor, "default").enqueue([first, percent]) == [
            Accepted(first.id),
            Accepted(percent.id),
        ]
        again, other = keyed("order"), keyed("order", what="else")
        answers = store.cursor_door(cursor, "default").enqueue([again, other])
        assert [type(answer) for answer in answers] == [Duplicate, Conflict]
        connection.commit()
        plain.close()
    assert set(taken_ids(store)) == {first.id, percent.id}


def test_a_cursor_on_another_database_is_refused(embedded: SqlStore, tmp_path: Path) -> None:
    other = create_engine(f"sqlite:///{tmp_path / 'other.db'}")
    with closing(other.raw_connection()) as connection:
        cursor: Any = _Formatted(connection.cursor(), _qmark)
        with pytest.raises(WrongDatabaseError):
            embedded.cursor_door(cursor, "other")
    with embedded._database.engine.connect() as connection_:
        assert connection_.execute(text("SELECT count(*) FROM guard_job")).scalar() == 0
    other.dispose()


def test_engines_that_come_and_go_are_not_kept(store: SqlStore) -> None:
    def come_and_go() -> None:
        passing = create_engine(store._database.url)
        with passing.begin() as connection:
            store.door(connection).enqueue([new_job()])
        passing.dispose()

    for _ in range(3):
        come_and_go()
    gc.collect()
    assert len(store._doors._engines) == 0
    assert len(store._doors._texts) == 1
