"""PostgreSQL prepares the store's own statements, with plans that stay good while the table grows."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import Any

import psycopg
import pytest
from psycopg.pq import ExecStatus
from sqlalchemy.engine import make_url

from celery_guard.job.verdict import Granted
from celery_guard.store.sql.dialects.prepared import PreparedCursor, _numbered
from celery_guard.store.sql.store import SqlStore
from celery_guard.testing.conformance.builders import LONG, new_job, succeeded
from celery_guard.testing.conformance.moves import accept, claim
from celery_guard.testing.databases import database
from celery_guard.testing.services import POSTGRESQL
from celery_guard.testing.wire import wire

from .test_statements import AT_ONCE

#: More than it takes to have a statement prepared.
ATTEMPTS = 8


@pytest.fixture
def url() -> Iterator[str]:
    with database(POSTGRESQL.need()) as made:
        yield made


@pytest.fixture
def prepared(url: str) -> Iterator[SqlStore]:
    """A store with one connection, on which an attempt's statements have been prepared."""
    with at_work(url) as opened:
        yield opened


@contextmanager
def at_work(url: str, **options: Any) -> Iterator[SqlStore]:
    """A store with one connection, on which more attempts were made than it takes to have their statements prepared."""
    opened = SqlStore(url, pool_size=1, **options)
    opened.upgrade()
    for _ in range(ATTEMPTS):
        job = new_job()
        accept(opened, job)
        granted = claim(opened, job.id)
        assert isinstance(granted, Granted)
        assert opened.settle(succeeded(granted))
    try:
        yield opened
    finally:
        opened.close()


def _asked(store: SqlStore, question: str) -> list[Any]:
    """What the store's own session answers."""
    with closing(store._database.engine.raw_connection()) as connection, closing(connection.cursor()) as cursor:
        cursor.execute(question)
        return [row[0] for row in cursor.fetchall()]


def test_the_statements_of_an_attempt_are_prepared(prepared: SqlStore) -> None:
    texts = _asked(prepared, "SELECT statement FROM pg_prepared_statements")
    assert any(text.startswith("UPDATE guard_job") for text in texts)
    assert any(text.startswith("WITH moved AS") for text in texts)
    assert len(texts) == len(set(texts))
    assert all(name.startswith("guard_") for name in _asked(prepared, "SELECT name FROM pg_prepared_statements"))


def test_no_plan_that_is_kept_reads_a_whole_table(prepared: SqlStore) -> None:
    assert _asked(prepared, "SHOW enable_seqscan") == ["off"]


def test_no_plan_is_compiled(prepared: SqlStore) -> None:
    assert _asked(prepared, "SHOW jit") == ["off"]


def test_nothing_is_left_on_a_session_behind_a_pooler_that_passes_on_the_process_of_the_server(url: str) -> None:
    with wire(url, 5432) as line, at_work(line.url) as store:
        assert _asked(store, "SELECT statement FROM pg_prepared_statements") == []
        assert _asked(store, "SHOW enable_seqscan") == ["on"]


def test_what_was_prepared_for_older_tables_is_prepared_anew(prepared: SqlStore, url: str) -> None:
    with psycopg.connect(url.replace("+psycopg", ""), autocommit=True) as other:
        other.execute("ALTER TABLE guard_job ALTER COLUMN tenant TYPE text")
    job = new_job()
    accept(prepared, job)
    granted = claim(prepared, job.id)
    assert isinstance(granted, Granted)
    assert prepared.settle(succeeded(granted))
    # also where SQLAlchemy runs them
    assert prepared.jobs()[0].id == job.id
    assert prepared.renew([(job.id, granted.fence, granted.owner)], LONG) == []


def test_a_prepared_statement_that_somebody_threw_away_is_prepared_anew_in_the_same_session(prepared: SqlStore) -> None:
    session = _asked(prepared, "SELECT pg_backend_pid()")
    with closing(prepared._database.engine.raw_connection()) as connection, closing(connection.cursor()) as cursor:
        cursor.execute("DO $$ BEGIN EXECUTE 'DEALLOCATE ALL'; END $$")  # the driver does not notice
    job = new_job()
    accept(prepared, job)
    assert isinstance(claim(prepared, job.id), Granted)
    assert _asked(prepared, "SELECT pg_backend_pid()") == session


def test_cursors_of_somebody_who_watches_the_driver_are_used(url: str) -> None:
    asked: list[str] = []

    class Watching(psycopg.Cursor[Any]):
        def execute(self, query: Any, *args: Any, **kwargs: Any) -> Any:
            asked.append(str(query))
            return super().execute(query, *args, **kwargs)

    arguments = {**make_url(url).translate_connect_args(username="user", database="dbname"), "cursor_factory": Watching}
    with at_work(url, connect=lambda: arguments) as store:
        names = _asked(store, "SELECT name FROM pg_prepared_statements")
        assert names
        assert all(name.startswith("_pg3_") for name in names)
    assert sum(text.startswith("WITH moved AS") for text in asked) == ATTEMPTS


@pytest.fixture
def cursor(url: str) -> Iterator[PreparedCursor]:
    with (
        psycopg.connect(url.replace("+psycopg", ""), autocommit=True) as connection,
        PreparedCursor(connection) as made,
    ):
        made.execute("CREATE TABLE shop (id VARCHAR PRIMARY KEY, n BIGINT)")
        yield made


_MANY = """
    SELECT %(word)s::VARCHAR, %(number)s::BIGINT, %(none)s::VARCHAR, %(no_number)s::INTEGER, %(bytes)s::BYTEA, %(no_bytes)s::BYTEA,
    %(words)s::VARCHAR[], %(word)s::VARCHAR || '%%', 'é', %(small)s::SMALLINT + 1, 7::BIGINT, false
"""


def test_values_and_rows_are_the_same_by_the_short_way(cursor: PreparedCursor) -> None:
    values = {
        "word": "it's 100 % é \N{SNOWMAN} \\ {", "number": -(2**40), "none": None, "no_number": None, "bytes": bytes(range(256)),
        "no_bytes": None, "words": ["one", 'two, "\\', "é"], "small": 2,
    }  # fmt: skip
    expected = cursor.connection.execute(_MANY, values).fetchall()
    for number in range(ATTEMPTS):
        assert cursor.execute(_MANY, values).fetchall() == expected
        assert cursor.rowcount == 1
        assert _names(cursor, "SELECT%::VARCHAR%") == (number >= 5)
    other = {**values, "word": "", "number": 3, "bytes": b"", "no_bytes": b"\x00", "words": [], "none": "x" * 100_000}
    assert cursor.execute(_MANY, other).fetchall() == cursor.connection.execute(_MANY, other).fetchall()


def _names(cursor: PreparedCursor, text: str) -> int:
    question = (
        "SELECT count(*) FROM pg_prepared_statements WHERE name LIKE 'guard%%' AND ltrim(statement, E' \\n') LIKE %s"
    )
    found = cursor.connection.execute(question, (text,)).fetchone()
    assert found is not None
    return int(found[0])


def test_a_refusal_says_the_same_by_the_short_way(cursor: PreparedCursor) -> None:
    sql = "INSERT INTO shop (id, n) VALUES (%(id)s::VARCHAR, %(n)s::BIGINT)"
    for number in range(ATTEMPTS):
        cursor.execute(sql, {"id": str(number), "n": number})
        assert cursor.rowcount == 1
        with pytest.raises(psycopg.errors.UniqueViolation) as refused:
            cursor.execute(sql, {"id": str(number), "n": 0})
        assert (refused.value.sqlstate, refused.value.diag.constraint_name) == ("23505", "shop_pkey")
        with pytest.raises(psycopg.DataError):
            cursor.execute(sql, {"id": "\x00", "n": 0})
        with pytest.raises(psycopg.errors.NumericValueOutOfRange):
            cursor.execute(sql, {"id": "far", "n": 2**70})
    assert _names(cursor, "INSERT%") == 1
    assert cursor.execute("UPDATE shop SET n = 1 WHERE n < %(n)s::BIGINT", {"n": 3}).rowcount == 3
    assert cursor.execute("SELECT count(*) FROM shop").fetchall() == [(ATTEMPTS,)]


def test_what_a_rollback_has_the_driver_throw_away_is_prepared_anew(cursor: PreparedCursor) -> None:
    """A transaction would be broken by what is missing: there the driver, which knows, runs all."""
    sql = "SELECT %(n)s::BIGINT"
    for number in range(ATTEMPTS):
        assert cursor.execute(sql, {"n": number}).fetchall() == [(number,)]
    for number in range(ATTEMPTS):
        cursor.execute("BEGIN")
        for _ in range(ATTEMPTS):
            assert cursor.execute(sql, {"n": number}).fetchall() == [(number,)]
        cursor.connection.rollback()
        assert _names(cursor, "SELECT%") == 0
        cursor.execute("BEGIN")
        assert cursor.execute(sql, {"n": number}).fetchall() == [(number,)]
        cursor.connection.commit()
        assert cursor.execute(sql, {"n": number}).fetchall() == [(number,)]
        assert _names(cursor, "SELECT%") == 1


def test_no_more_texts_are_remembered_than_a_session_should_keep(cursor: PreparedCursor) -> None:
    for number in range(200):
        for _ in range(ATTEMPTS):
            assert cursor.execute(f"SELECT {number}, %(n)s::BIGINT", {"n": 1}).fetchall() == [(number, 1)]
    assert _names(cursor, "SELECT%") == 100


def test_the_server_knows_the_type_of_every_value(prepared: SqlStore) -> None:
    """Values are given without a type: each is of the one that the statement casts it to."""
    with closing(prepared._database.engine.raw_connection()) as connection:
        server = connection.driver_connection.pgconn  # type: ignore[union-attr]
        for shape in AT_ONCE:
            made = server.prepare(b"", _numbered(prepared._database.texts.of(*shape).sql).sql.encode())
            assert made.status == ExecStatus.COMMAND_OK, made.get_error_message()
