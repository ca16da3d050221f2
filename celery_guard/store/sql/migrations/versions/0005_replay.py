"""Replays that are driven from the store, and notes to causes."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import mysql

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None

_TABLES = ("guard_replay_batch", "guard_cause_note")


def upgrade() -> None:
    """Make them."""
    for column in _columns():
        if not _left_over("guard_replay", "columns", column.name):
            op.add_column("guard_replay", column)
    done = sa.text("done IS NOT NULL")
    if not _left_over("guard_replay", "indexes", "guard_replay_cause"):
        op.create_index(
            "guard_replay_cause", "guard_replay", ["cause", "done"], postgresql_where=done, sqlite_where=done
        )
    if not _left_over("guard_replay_batch", "table"):
        op.create_table("guard_replay_batch", *_batch(), **_exact())
    if not _left_over("guard_replay_batch", "indexes", "guard_replay_batch_state"):
        op.create_index("guard_replay_batch_state", "guard_replay_batch", ["state", "created"])
    if not _left_over("guard_cause_note", "table"):
        op.create_table("guard_cause_note", *_note(), **_exact())


def downgrade() -> None:
    """Drop them."""
    for name in reversed(_TABLES):
        op.drop_table(name)
    op.drop_index("guard_replay_cause", "guard_replay")
    for column in reversed(_columns()):
        op.drop_column("guard_replay", column.name)


def _columns() -> list[sa.Column[Any]]:
    return [
        sa.Column("tenant", sa.String(255)),
        sa.Column("cause", sa.String(255)),
        sa.Column("replays", sa.Integer),
        sa.Column("wave", sa.Integer),
    ]


def _batch() -> list[sa.Column[Any]]:
    return [
        sa.Column("id", sa.String(255), primary_key=True),
        sa.Column("state", sa.String(32), nullable=False),
        *(sa.Column(name, sa.String(255), nullable=False) for name in ("actor", "role", "origin")),
        sa.Column("tenant", sa.String(255)),
        _text("target"),
        _text("reason"),
        _text("why", nullable=True),
        sa.Column("created", sa.BigInteger, nullable=False),
        sa.Column("ended", sa.BigInteger),
        sa.Column("next_at", sa.BigInteger, nullable=False),
        sa.Column("every", sa.BigInteger, nullable=False),
        sa.Column("cap", sa.Integer),
        sa.Column("stop_share", sa.Integer, nullable=False),
        sa.Column("same_cause", sa.Integer, nullable=False),
        *(sa.Column(name, sa.Integer, nullable=False, server_default="0") for name in ("total", "wave", "run")),
    ]


def _note() -> list[sa.Column[Any]]:
    return [
        sa.Column("cause", sa.String(255), primary_key=True),
        _text("note"),
        sa.Column("actor", sa.String(255), nullable=False),
        sa.Column("at", sa.BigInteger, nullable=False),
    ]


def _text(name: str, *, nullable: bool = False) -> sa.Column[Any]:
    return sa.Column(name, sa.Text().with_variant(mysql.LONGTEXT(), "mysql", "mariadb"), nullable=nullable)


def _exact() -> dict[str, Any]:
    """Compare exactly; see revision 0001."""
    collation = "utf8mb4_nopad_bin" if getattr(op.get_context().dialect, "is_mariadb", False) else "utf8mb4_0900_bin"
    return {"mysql_engine": "InnoDB", "mysql_charset": "utf8mb4", "mysql_collate": collation}


def _left_over(table: str, kind: str, name: str | None = None) -> bool:
    """Whether it is there already. MySQL commits each change as it is made, so an upgrade that was killed leaves some."""
    context = op.get_context()
    if context.as_sql or context.dialect.name not in ("mysql", "mariadb"):
        return False
    found = sa.inspect(op.get_bind())
    if kind == "table":
        return found.has_table(table)
    there = found.get_columns(table) if kind == "columns" else found.get_indexes(table)
    return name in {each["name"] for each in there}
