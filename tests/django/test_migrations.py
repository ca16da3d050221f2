"""The store's tables by Django's runner, and by the guard's own: the same tables, whoever made them."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any, ClassVar

import pytest
from alembic.autogenerate import compare_metadata
from alembic.runtime.migration import MigrationContext
from django.core.management import call_command
from django.db import connection, connections
from django.db.migrations.recorder import MigrationRecorder
from django.test import TransactionTestCase

import celery_guard.integrations.django.migrations as migrations
from celery_guard.errors import StoreSchemaError
from celery_guard.integrations.django.testing import delete_jobs
from celery_guard.store.sql import schema
from celery_guard.store.sql.tables import job, metadata
from tests.django.shop.celery import guard
from tests.django.shop.routers import refused
from tests.django.shop.tasks import look_up

store: Any = guard.store


def names() -> list[str]:
    return sorted(path.stem for path in Path(migrations.__path__[0]).glob("0*.py"))


def forget_applied() -> None:
    """Django believes that none of the guard's migrations was run."""
    for name in names():
        MigrationRecorder(connection).record_unapplied("celery_guard", name)


def tables(alias: str = "default") -> set[str]:
    with connections[alias].cursor() as cursor:
        names = connections[alias].introspection.table_names(cursor)
    return {name for name in names if name.startswith("guard_")}


def migrate(*words: str, alias: str = "default") -> None:
    call_command("migrate", "celery_guard", *words, database=alias, verbosity=0)


ALL = {*metadata.tables, schema.VERSION_TABLE}


class TestMigrations(TransactionTestCase):
    databases: ClassVar = {"default", "other"}

    def setUp(self) -> None:
        assert tables() == ALL

    def tearDown(self) -> None:
        refused.clear()
        migrate("zero")
        migrate()
        delete_jobs()

    def test_migrated_by_django_is_declared(self) -> None:
        with store._database.engine.connect() as alembics:
            options = {"compare_type": True, "version_table": schema.VERSION_TABLE}
            kind = alembics.dialect.name
            elsewhere = {index.name for index in job.indexes if index.info.get("only", kind) != kind}
            context = MigrationContext.configure(alembics, opts=options)
            own = [
                difference
                for difference in compare_metadata(context, metadata)
                # Django's tables are not the guard's to drop
                if difference[0] not in ("remove_table", "remove_index")
                # an index that only another kind of database has
                and not (difference[0] == "add_index" and difference[1].name in elsewhere)
            ]
        assert own == []
        store.check()

    def test_what_django_made_the_guard_finds_done(self) -> None:
        store._forget_identity()
        identity = store._own_identity()
        store.upgrade()
        store.check()
        store._forget_identity()
        assert store._own_identity() == identity

    def test_what_the_guard_made_django_finds_done(self) -> None:
        migrate("zero")
        assert tables() == set()
        store.upgrade()
        store.close()
        handle = look_up.delay(1)
        migrate()
        store.check()
        assert [found.id for found in store.jobs()] == [handle.id]

    def test_back_to_zero_leaves_nothing_and_forward_again_all(self) -> None:
        migrate("zero")
        assert tables() == set()
        with pytest.raises(StoreSchemaError, match="missing"):
            store.check()
        store.close()
        with pytest.raises(StoreSchemaError, match="missing"):
            look_up.delay(1)
        migrate()
        store.check()

    def test_a_step_back_takes_back_one_revision_and_no_job(self) -> None:
        handle = look_up.delay(1)
        store.close()
        for before, revision in zip(names()[-2::-1], schema.revisions()[-2::-1], strict=True):
            migrate(before)
            with connection.cursor() as cursor:
                cursor.execute("SELECT version_num, (SELECT id FROM guard_job) FROM guard_version")
                assert cursor.fetchone() == (revision, handle.id)

    def test_another_database_than_the_stores_gets_no_tables(self) -> None:
        migrate(alias="other")
        assert tables("other") == set()

    def test_a_router_that_refuses_is_obeyed(self) -> None:
        migrate("zero")
        refused.add("default")
        migrate()
        assert tables() == set()
        refused.clear()
        forget_applied()
        migrate()
        assert tables() == ALL

    def test_tables_of_a_newer_version_are_left_alone(self) -> None:
        with connection.cursor() as cursor:
            cursor.execute("UPDATE guard_version SET version_num = 'from-the-future'")
        forget_applied()
        with pytest.raises(StoreSchemaError, match="newer"):
            migrate()
        with connection.cursor() as cursor:
            cursor.execute("UPDATE guard_version SET version_num = %s", [schema.HEAD])
        migrate()

    def test_sqlmigrate_prints_the_statements(self) -> None:
        printed = io.StringIO()
        for name in names():
            call_command("sqlmigrate", "celery_guard", name, stdout=printed)
        for name in ALL:
            assert f"CREATE TABLE {name} " in printed.getvalue()
        assert "INSERT INTO guard_store" in printed.getvalue()

    def test_no_migration_is_missing(self) -> None:
        call_command("makemigrations", check=True, dry_run=True, verbosity=0)
        assert [name.partition("_")[0] for name in names()] == schema.revisions()
