"""What metrics are made of: totals that outlive the rows, and up to where each row is in them."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None


def _exact() -> dict[str, Any]:
    """As in 0001: names are compared exactly, and the two servers have another name each for the collation that does."""
    collation = "utf8mb4_nopad_bin" if getattr(op.get_context().dialect, "is_mariadb", False) else "utf8mb4_0900_bin"
    return {"mysql_engine": "InnoDB", "mysql_charset": "utf8mb4", "mysql_collate": collation}


def upgrade() -> None:
    """Rows that are there already are counted by the sweep, in its own time."""
    tables, columns, indexes = _found()
    if "guard_count" not in tables:
        op.create_table(
            "guard_count",
            sa.Column("part", sa.String(32), primary_key=True),
            sa.Column("what", sa.String(32), primary_key=True),
            sa.Column("task", sa.String(255), primary_key=True),
            sa.Column("state", sa.String(32), primary_key=True),
            sa.Column("reason", sa.String(32), primary_key=True),
            sa.Column("failure_class", sa.String(32), primary_key=True),
            sa.Column("total", sa.BigInteger, nullable=False),
            **_exact(),
        )
    for column in (
        sa.Column("asked", sa.BigInteger),
        sa.Column("counted", sa.BigInteger, nullable=False, server_default="0"),
        sa.Column("counted_as", sa.String(255)),
    ):
        if column.name not in columns:
            op.add_column("guard_job", column)
    uncounted = sa.text("counted >= 0 AND finished IS NOT NULL")
    if "guard_job_uncounted" not in indexes:
        op.create_index(
            "guard_job_uncounted",
            "guard_job",
            ["counted", "finished"],
            postgresql_where=uncounted,
            sqlite_where=uncounted,
        )


def downgrade() -> None:
    """The totals are gone."""
    op.drop_index("guard_job_uncounted", "guard_job")
    for name in ("counted_as", "counted", "asked"):
        op.drop_column("guard_job", name)
    op.drop_table("guard_count")


def _found() -> tuple[set[str], set[str], set[str | None]]:
    """What an upgrade that was cut short has made: MySQL keeps each change by itself."""
    context = op.get_context()
    if context.as_sql or context.dialect.name not in ("mysql", "mariadb"):
        return set(), set(), set()
    found = sa.inspect(op.get_bind())
    columns = {column["name"] for column in found.get_columns("guard_job")}
    return set(found.get_table_names()), columns, {index["name"] for index in found.get_indexes("guard_job")}
