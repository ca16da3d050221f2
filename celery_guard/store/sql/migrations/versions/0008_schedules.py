"""Which schedule sent a job, so that it can be told when each last succeeded."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0008"
down_revision = "0007"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the name; jobs that are there were sent by nobody who said so."""
    if not _left_over():
        op.add_column("guard_job", sa.Column("schedule", sa.String(255)))


def downgrade() -> None:
    """Drop it."""
    op.drop_column("guard_job", "schedule")


def _left_over() -> bool:
    """Whether it is there already: MySQL commits each change as it is made, and an upgrade that was killed leaves it."""
    context = op.get_context()
    if context.as_sql or context.dialect.name not in ("mysql", "mariadb"):
        return False
    return any(column["name"] == "schedule" for column in sa.inspect(op.get_bind()).get_columns("guard_job"))
