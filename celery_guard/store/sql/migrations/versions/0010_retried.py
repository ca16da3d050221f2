"""Which failures were answered by another run, so that retries are counted by the class of what failed."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0010"
down_revision = "0009"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the mark; of failures that are there it is not known, and their retries are counted without a class."""
    if not _left_over():
        op.add_column("guard_failure", sa.Column("retried", sa.SmallInteger, nullable=False, server_default="0"))


def downgrade() -> None:
    """Drop it."""
    op.drop_column("guard_failure", "retried")


def _left_over() -> bool:
    """Whether it is there already: MySQL commits each change as it is made, and an upgrade that was killed leaves it."""
    context = op.get_context()
    if context.as_sql or context.dialect.name not in ("mysql", "mariadb"):
        return False
    return any(column["name"] == "retried" for column in sa.inspect(op.get_bind()).get_columns("guard_failure"))
