"""PostgreSQL prepares the store's own statements, with plans that stay good while the table grows."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import Any

import psycopg
import pytest

from celery_guard.job.verdict import Granted
from celery_guard.store.sql.store import SqlStore
from celery_guard.testing.conformance.builders import LONG, new_job, succeeded
from celery_guard.testing.conformance.moves import accept, claim
from celery_guard.testing.databases import database
from celery_guard.testing.services import POSTGRESQL
from celery_guard.testing.wire import wire


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
def at_work(url: str) -> Iterator[SqlStore]:
    """A store with one connection, on which more attempts were made than it takes to have their statements prepared."""
    opened = SqlStore(url, pool_size=1)
    opened.upgrade()
    for _ in range(8):
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


def test_a_prepared_statement_that_somebody_threw_away_is_prepared_anew(prepared: SqlStore) -> None:
    with closing(prepared._database.engine.raw_connection()) as connection, closing(connection.cursor()) as cursor:
        cursor.execute("DO $$ BEGIN EXECUTE 'DEALLOCATE ALL'; END $$")  # the driver does not notice
    job = new_job()
    accept(prepared, job)
    assert isinstance(claim(prepared, job.id), Granted)
