"""How often in a row a job was interrupted."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the count; of jobs that are there it begins now."""
    if not _left_over():
        op.add_column("guard_job", sa.Column("interruptions", sa.Integer, nullable=False, server_default="0"))


def downgrade() -> None:
    """Drop it."""
    op.drop_column("guard_job", "interruptions")


def _left_over() -> bool:
    """Whether it is there already: MySQL commits each change as it is made, and an upgrade that was killed leaves it."""
    context = op.get_context()
    if context.as_sql or context.dialect.name not in ("mysql", "mariadb"):
        return False
    return any(column["name"] == "interruptions" for column in sa.inspect(op.get_bind()).get_columns("guard_job"))
