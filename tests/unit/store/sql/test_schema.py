"""What an upgrade leaves, and what is said where there was none."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from sqlalchemy import inspect, text
from sqlalchemy.engine import Connection

from celery_guard.errors import StoreSchemaError
from celery_guard.store.sql import SqlStore, open_store
from celery_guard.store.sql.tables import metadata
from celery_guard.testing.databases import database

from .conftest import NewDatabase


def test_an_upgrade_of_new_tables_changes_nothing(store: SqlStore) -> None:
    before = store._own_identity()
    store.upgrade()
    store._identity = None
    assert store._own_identity() == before


def test_every_database_is_a_store_of_its_own(new_database: NewDatabase) -> None:
    urls = new_database(), new_database()
    for url in urls:
        store = open_store(url)
        store.upgrade()
        store.close()
    assert _identities(urls[0]) != _identities(urls[1])


def _identities(url: str) -> list[str]:
    return _with(url, lambda connection: list(connection.execute(text("SELECT id FROM guard_store")).scalars()))


def _with(url: str, work: Callable[[Connection], list[str]]) -> list[str]:
    store = open_store(url)
    try:
        return store._database.each(lambda connection, again: work(connection))
    finally:
        store.close()


def test_an_operation_without_tables_says_what_to_type(new_database: NewDatabase) -> None:
    store = open_store(new_database())
    try:
        with pytest.raises(StoreSchemaError, match="celery -A app guard store upgrade"):
            store.outcome("any")
        with pytest.raises(StoreSchemaError, match="celery -A app guard store upgrade"):
            store.counts()
    finally:
        store.close()


def test_tables_of_a_newer_version_are_left_alone(new_database: NewDatabase) -> None:
    store = open_store(new_database())
    try:
        store.upgrade()
        with store._database.engine.connect() as connection:
            connection.execute(text("UPDATE guard_version SET version_num = '9999'"))
        with pytest.raises(StoreSchemaError, match="9999"):
            store.upgrade()
    finally:
        store.close()


def test_an_upgrade_that_was_killed_half_way_is_finished_by_the_next(mariadb_url: str) -> None:
    """MariaDB keeps each table that was made; elsewhere all are made in one transaction."""
    with database(mariadb_url) as url:
        store = open_store(url)
        try:
            store.upgrade()
            before = _identities(url)
            with store._database.engine.connect() as connection:
                for statement in (
                    "DELETE FROM guard_version",
                    "DROP TABLE guard_heartbeat",
                    "DROP INDEX guard_job_holder ON guard_job",
                ):
                    connection.execute(text(statement))
            store.upgrade()
            store.check()
            with store._database.engine.connect() as connection:
                tables, indexes = inspect(connection).get_table_names(), inspect(connection).get_indexes("guard_job")
            assert set(metadata.tables) < set(tables)
            assert {index["name"] for index in indexes} == {
                index.name for index in metadata.tables["guard_job"].indexes if "only" not in index.info
            }
            assert _identities(url) == before
        finally:
            store.close()
