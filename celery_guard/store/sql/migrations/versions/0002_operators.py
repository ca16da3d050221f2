"""What operators ask for: indexes for their questions, and what they have done about a message in quarantine."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import mysql

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None

_INDEXES: tuple[tuple[str, str, list[str], str | None], ...] = (
    ("guard_job_task", "guard_job", ["task", "created"], None),
    ("guard_job_tenant", "guard_job", ["tenant", "created"], "tenant IS NOT NULL"),
    ("guard_job_key", "guard_job", ["key_hash"], "key_hash IS NOT NULL"),
    ("guard_job_started", "guard_job", ["queue", "started"], "started IS NOT NULL"),
    ("guard_quarantine_handled", "guard_quarantine", ["handled"], "handled IS NOT NULL"),
)


def upgrade() -> None:
    """Add them."""
    long = sa.Text().with_variant(mysql.LONGTEXT(), "mysql", "mariadb")
    for column in (
        sa.Column("delivery", long),
        sa.Column("state", sa.String(32), nullable=False, server_default="kept"),
        sa.Column("handled", sa.BigInteger),
        sa.Column("why", long),
    ):
        if not _left_over("guard_quarantine", "columns", column.name):
            op.add_column("guard_quarantine", column)
    for name, table, columns, where in _INDEXES:
        partial: dict[str, Any] = {"postgresql_where": sa.text(where), "sqlite_where": sa.text(where)} if where else {}
        if not _left_over(table, "indexes", name):
            op.create_index(name, table, columns, **partial)


def downgrade() -> None:
    """Take them away."""
    for name, table, _, _ in _INDEXES:
        op.drop_index(name, table_name=table)
    for name in ("delivery", "state", "handled", "why"):
        op.drop_column("guard_quarantine", name)


def _left_over(table: str, kind: str, name: str) -> bool:
    """Whether it is there already. MySQL commits each change as it is made, so an upgrade that was killed leaves some."""
    context = op.get_context()
    if context.as_sql or context.dialect.name not in ("mysql", "mariadb"):
        return False
    found = sa.inspect(op.get_bind())
    there = found.get_columns(table) if kind == "columns" else found.get_indexes(table)
    return name in {each["name"] for each in there}
