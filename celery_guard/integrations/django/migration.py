"""The store's tables by Django's runner: each revision of the tables is a migration of Django's too.

The statements are those of the guard's own migrations, run on Django's connection, in its transaction where the database has such
for tables. What version the tables are of is written in the database (``guard_version``), by whoever brought them there, so that
`migrate` and `guard store upgrade` each find done what the other did.
"""

from __future__ import annotations

from typing import Any

from django.db import router
from django.db.migrations.operations.base import Operation

from celery_guard.store.sql import schema

from .address import store_alias

__all__ = ["UpgradeStore"]


class UpgradeStore(Operation):  # type: ignore[misc]
    """Bring the store's tables to a revision, in the database that the store is in, if the routers allow it there."""

    reduces_to_sql = True
    reversible = True

    def __init__(self, revision: str, previous: str | None = None) -> None:
        self.revision = revision
        self.previous = previous

    def state_forwards(self, app_label: str, state: Any) -> None:
        """No model of Django's stands for these tables."""

    def database_forwards(self, app_label: str, schema_editor: Any, from_state: Any, to_state: Any) -> None:
        """Run what is missing up to the revision."""
        if self._belongs_here(app_label, schema_editor):
            found = self.previous if schema_editor.collect_sql else _version(schema_editor.connection)
            _run(schema_editor, schema.upgrade_statements(_kind(schema_editor.connection), found, self.revision))

    def database_backwards(self, app_label: str, schema_editor: Any, from_state: Any, to_state: Any) -> None:
        """Go back to the revision before; before the first there are no tables, and no jobs."""
        if not self._belongs_here(app_label, schema_editor):
            return
        found = self.revision if schema_editor.collect_sql else _version(schema_editor.connection)
        if found == self.revision:
            _run(schema_editor, schema.downgrade_statements(_kind(schema_editor.connection), found, self.previous))

    def describe(self) -> str:
        """What `migrate --plan` prints."""
        return f"celery-guard's tables, revision {self.revision}"

    def _belongs_here(self, app_label: str, schema_editor: Any) -> bool:
        alias = schema_editor.connection.alias
        return alias == store_alias() and bool(router.allow_migrate(alias, app_label))


def _run(schema_editor: Any, statements: list[str]) -> None:
    for statement in statements:
        schema_editor.execute(statement, params=None)


def _kind(connection: Any) -> str:
    return "mariadb" if connection.vendor == "mysql" and connection.mysql_is_mariadb else str(connection.vendor)


def _version(connection: Any) -> str | None:
    """The revision that the tables are of; None where there are none."""
    with connection.cursor() as cursor:
        if schema.VERSION_TABLE not in connection.introspection.table_names(cursor):
            return None
        cursor.execute("SELECT version_num FROM guard_version")
        found = cursor.fetchone()
        return None if found is None else str(found[0])
