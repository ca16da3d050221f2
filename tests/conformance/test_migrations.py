"""The tables that the migrations make are the tables that are declared, on each database."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from alembic.autogenerate import compare_metadata
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import create_engine, inspect, text
from sqlalchemy.engine import Connection, Engine
from sqlalchemy.exc import DBAPIError
from sqlalchemy.schema import CreateIndex, DropIndex

from celery_guard.errors import StoreSchemaError
from celery_guard.store import open_store
from celery_guard.store.sql import schema
from celery_guard.store.sql.tables import job, metadata
from celery_guard.testing.databases import database
from celery_guard.testing.services import MARIADB, POSTGRESQL


@pytest.fixture(params=["sqlite", "postgresql", "mariadb"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """A database without any tables."""
    if request.param == "sqlite":
        yield f"sqlite:///{tmp_path / 'new.db'}"
        return
    with database({"postgresql": POSTGRESQL, "mariadb": MARIADB}[request.param].need()) as made:
        yield made


def upgrade(url: str) -> None:
    store = open_store(url)
    store.upgrade()
    store.close()


def test_migrated_is_declared(url: str) -> None:
    upgrade(url)
    engine = create_engine(url)
    with engine.connect() as connection:
        options = {"compare_type": True, "version_table": schema.VERSION_TABLE}
        differences = compare_metadata(MigrationContext.configure(connection, opts=options), metadata)
    engine.dispose()
    assert [each for each in differences if not of_another_database(each, engine.dialect.name)] == []


def of_another_database(difference: tuple[Any, ...], kind: str) -> bool:
    """Whether it is an index that only another kind of database has."""
    elsewhere = {index.name for index in job.indexes if index.info.get("only", kind) != kind}
    return difference[0] == "add_index" and difference[1].name in elsewhere


def indexes(connection: Connection) -> dict[str, str]:
    found = text("SELECT indexname, indexdef FROM pg_indexes WHERE tablename = 'guard_job'")
    return {row.indexname: row.indexdef for row in connection.execute(found)}


def test_indexes_that_were_made_before_the_upgrade_as_its_page_says_are_those_that_it_makes() -> None:
    """And those that are declared, with the rows that they hold, which Alembic does not compare."""
    page = (Path(__file__).parents[2] / "docs/howto/upgrade.md").read_text()
    beforehand = page.partition("```sql\n")[2].partition("```")[0].split(";")[:-1]
    with database(POSTGRESQL.need()) as by_upgrade, database(POSTGRESQL.need()) as by_hand:
        upgrade(by_upgrade)
        fresh, old = create_engine(by_upgrade), create_engine(by_hand, isolation_level="AUTOCOMMIT")
        with fresh.connect() as migrated, old.connect() as large:
            for statement in schema.upgrade_statements("postgresql", None, "0008"):
                large.exec_driver_sql(statement)
            for statement in beforehand:
                large.exec_driver_sql(statement)
            number = {"name": "guard_job_task_counted"}
            made = large.execute(text("SELECT CAST(:name AS regclass)::oid"), number).scalar_one()
            upgrade(by_hand)
            kept = {"name": "guard_job_task"}
            assert large.execute(text("SELECT CAST(:name AS regclass)::oid"), kept).scalar_one() == made
            assert indexes(large) == indexes(migrated)
            for index in job.indexes:
                large.execute(DropIndex(index))
                large.execute(CreateIndex(index))
            assert indexes(large) == indexes(migrated)
        fresh.dispose()
        old.dispose()


def test_an_index_whose_making_was_interrupted_is_named_and_made_anew(caplog: pytest.LogCaptureFixture) -> None:
    with database(POSTGRESQL.need()) as url, engine_of(url) as engine, engine.connect() as connection:
        for statement in schema.upgrade_statements("postgresql", None, "0008"):
            connection.exec_driver_sql(statement)
        for name in ("guard_job_waiting", "guard_job_created_counted"):
            interrupt_making(engine, name)
        assert invalid(connection) == {"guard_job_waiting", "guard_job_created_counted"}
        upgrade(url)
        assert invalid(connection) == set()
        assert {"guard_job_waiting", "guard_job_created"} <= indexes(connection).keys()
        interrupt_making(engine, "guard_job_of_mine")
        store = open_store(url)
        store.check()
        assert "REINDEX INDEX CONCURRENTLY guard_job_of_mine" in caplog.text
        caplog.clear()
        connection.exec_driver_sql("REINDEX INDEX CONCURRENTLY guard_job_of_mine")
        store.check()
        assert not caplog.text
        store.close()


@contextmanager
def engine_of(url: str) -> Iterator[Engine]:
    engine = create_engine(url, isolation_level="AUTOCOMMIT")
    yield engine
    engine.dispose()


def interrupt_making(engine: Engine, name: str) -> None:
    """Make an index while a transaction has written a row, for which the making waits, and cancel it."""
    with engine.connect() as writer, engine.connect() as maker, ThreadPoolExecutor(1) as pool:
        writer.exec_driver_sql("BEGIN")
        writer.exec_driver_sql("LOCK TABLE guard_job IN ROW EXCLUSIVE MODE")
        session = maker.exec_driver_sql("SELECT pg_backend_pid()").scalar_one()
        making = pool.submit(maker.exec_driver_sql, f"CREATE INDEX CONCURRENTLY {name} ON guard_job (created)")
        waits = text("SELECT cardinality(pg_blocking_pids(:session)) > 0")
        while not writer.execute(waits, {"session": session}).scalar_one():
            assert not making.done()
        writer.execute(text("SELECT pg_cancel_backend(:session)"), {"session": session})
        with pytest.raises(DBAPIError):
            making.result(30)
        writer.exec_driver_sql("ROLLBACK")


def invalid(connection: Connection) -> set[str]:
    found = text("SELECT CAST(CAST(indexrelid AS regclass) AS text) FROM pg_index WHERE NOT indisvalid")
    return set(connection.execute(found).scalars())


def test_an_upgrade_twice_and_from_many_processes_is_one_upgrade(url: str) -> None:
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(upgrade, [url] * 4))
    upgrade(url)
    store = open_store(url)
    store.check()
    store.close()


def test_missing_old_and_newer_tables_are_said_with_what_to_type(url: str) -> None:
    store = open_store(url)
    with pytest.raises(StoreSchemaError, match=r"missing.*guard store upgrade"):
        store.check()
    store.upgrade()
    store.check()
    engine = create_engine(url)
    with engine.begin() as connection:
        connection.execute(text("UPDATE guard_version SET version_num = 'from-the-future'"))
    with pytest.raises(StoreSchemaError, match="newer"):
        store.check()
    store.close()
    engine.dispose()


def test_the_statements_for_people_who_run_their_own_make_the_same_tables(url: str) -> None:
    store = open_store(url)
    statements = store.upgrade_sql()
    engine = create_engine(url)
    with engine.begin() as connection:
        for statement in statements.split(";\n"):
            if statement.strip() and not statement.strip().upper().startswith(("BEGIN", "COMMIT")):
                connection.exec_driver_sql(statement.replace("%", "%%") if "mysql" in url else statement)
    assert set(inspect(engine).get_table_names()) == {*metadata.tables, schema.VERSION_TABLE}
    store.check()
    store.close()
    engine.dispose()


def test_the_newest_revision_is_the_one_that_a_worker_looks_for() -> None:
    assert ScriptDirectory.from_config(schema._config()).get_current_head() == schema.HEAD


def at_version(url: str, version: str) -> None:
    engine = create_engine(url)
    with engine.begin() as connection:
        connection.execute(text("UPDATE guard_version SET version_num = :version"), {"version": version})
    engine.dispose()


def test_tables_of_a_later_revision_that_only_adds_are_worked_on_and_left_as_they_are(url: str) -> None:
    """The code of the release before, which is started again while its fleet is being upgraded."""
    upgrade(url)
    at_version(url, f"{schema.HEAD[:2]}99")
    store = open_store(url)
    store.check()
    store.upgrade()
    store.check()
    at_version(url, f"{int(schema.HEAD[:2]) + 1:02}00")
    for look in (store.check, store.upgrade):
        with pytest.raises(StoreSchemaError, match="made by a newer one"):
            look()
    store.close()


def test_a_migration_of_a_series_takes_nothing_away_and_asks_nothing_of_the_code_before_it(url: str) -> None:
    """So workers, relays and publishers of the release before work on the new tables."""
    engine = create_engine(url)
    with engine.connect() as connection:  # only the server tells MySQL from MariaDB
        kind = "mariadb" if getattr(connection.dialect, "is_mariadb", False) else connection.dialect.name
    found: str | None = None
    for revision in schema.revisions():
        before = tables(engine) if found is not None and found[:2] == revision[:2] else {}
        with engine.begin() as connection:
            for statement in schema.upgrade_statements(kind, found, revision):
                connection.exec_driver_sql(statement.replace("%", "%%") if "mysql" in url else statement)
        after = tables(engine)
        for table, columns in before.items():
            for name, column in columns.items():
                assert after[table][name] == column, f"{revision} changes {table}.{name}"
            for name, column in after[table].items():
                if name not in columns:
                    assert column[1] or column[2], f"{revision}: the code before knows nothing of {table}.{name}"
        found = revision
    engine.dispose()
    assert found == schema.HEAD


def tables(engine: Engine) -> dict[str, dict[str, tuple[str, bool, bool]]]:
    """Of each table, of each column: its type, whether it may be left empty, and whether it has a default."""
    look = inspect(engine)
    return {
        table: {
            column["name"]: (str(column["type"]), bool(column["nullable"]), column["default"] is not None)
            for column in look.get_columns(table)
        }
        for table in look.get_table_names()
        if table.startswith("guard_")
    }
