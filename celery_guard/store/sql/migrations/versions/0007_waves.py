"""A step of a replay reads the wave that is under way, however large its set is."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Make the index."""
    if not _left_over():
        op.create_index("guard_replay_wave", "guard_replay", ["batch", "state", "wave"])


def downgrade() -> None:
    """Drop it."""
    op.drop_index("guard_replay_wave", "guard_replay")


def _left_over() -> bool:
    """Whether an upgrade that was cut short has made it: MySQL keeps each change by itself."""
    context = op.get_context()
    if context.as_sql or context.dialect.name not in ("mysql", "mariadb"):
        return False
    return "guard_replay_wave" in {index["name"] for index in sa.inspect(op.get_bind()).get_indexes("guard_replay")}
