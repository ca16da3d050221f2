"""The audit says for whom, from where, on what, and what came of it."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import mysql

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None

_NAMES = ("token", "entry", "role", "origin", "tenant")


def upgrade() -> None:
    """Add the columns; rows that were there have none of it."""
    columns, indexes = _found()
    for column in _columns():
        if column.name not in columns:
            op.add_column("guard_audit", column)
    for name, unique in (("token", True), ("entry", False), ("at", False)):
        if f"guard_audit_{name}" not in indexes:
            op.create_index(f"guard_audit_{name}", "guard_audit", [name], unique=unique)


def downgrade() -> None:
    """Drop them."""
    for name in ("at", "entry", "token"):
        op.drop_index(f"guard_audit_{name}", "guard_audit")
    for column in reversed(_columns()):
        op.drop_column("guard_audit", column.name)


def _columns() -> list[sa.Column[Any]]:
    return [
        *(sa.Column(name, sa.String(255)) for name in _NAMES),
        sa.Column("outcome", sa.String(32)),
        sa.Column("target", sa.Text().with_variant(mysql.LONGTEXT(), "mysql", "mariadb")),
    ]


def _found() -> tuple[set[str], set[str | None]]:
    """What an upgrade that was cut short has made: MySQL keeps each change by itself."""
    context = op.get_context()
    if context.as_sql or context.dialect.name not in ("mysql", "mariadb"):
        return set(), set()
    found = sa.inspect(op.get_bind())
    columns = {column["name"] for column in found.get_columns("guard_audit")}
    return columns, {index["name"] for index in found.get_indexes("guard_audit")}
