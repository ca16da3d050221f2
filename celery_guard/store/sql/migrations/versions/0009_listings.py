"""On PostgreSQL a job has one entry in each index of the listings, made when it is written no more; before, one each time it was written.

Only there: other databases write an index only where its columns change. An index that is there already under its new name, with ``_counted`` behind it,
is taken as it is: so that on a large table they can be made beforehand with ``CONCURRENTLY``, which a migration's transaction cannot. One that was
interrupted is there too, and no query uses it: it is dropped first, and made anew.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0009"
down_revision = "0008"
branch_labels = None
depends_on = None

_WAITING = "state IN ('pending', 'sent')"
_COUNTED = "counted < 0"
_STARTED = f"({_COUNTED} OR state IN ('pending', 'sent', 'unknown'))"
#: Name, columns, which rows it held, which it holds.
_INDEXES = (
    ("guard_job_created", ["created"], None, _COUNTED),
    ("guard_job_task", ["task", "created"], None, _COUNTED),
    ("guard_job_tenant", ["tenant", "created"], "tenant IS NOT NULL", f"tenant IS NOT NULL AND {_COUNTED}"),
    ("guard_job_key", ["key_hash"], "key_hash IS NOT NULL", f"key_hash IS NOT NULL AND {_COUNTED}"),
    ("guard_job_started", ["queue", "started"], "started IS NOT NULL", f"started IS NOT NULL AND {_STARTED}"),
)
#: A block, since the statements are also run by others, who can be asked nothing.
_DROP_INVALID = """DO $$ BEGIN IF EXISTS (
    SELECT FROM pg_index WHERE indexrelid = to_regclass('{name}') AND indrelid = to_regclass('guard_job') AND NOT indisvalid
) THEN DROP INDEX {name}; END IF; END $$"""


def upgrade() -> None:
    """Put the narrow ones in the place of those that hold every row."""
    if op.get_context().dialect.name != "postgresql":
        return
    _create("guard_job_waiting", ["created"], _WAITING)
    for name, columns, _, narrow in _INDEXES:
        new = f"{name}_counted"
        _create(new, columns, narrow)
        op.drop_index(name, "guard_job")
        op.execute(f"ALTER INDEX {new} RENAME TO {name}")


def _create(name: str, columns: list[str], rows: str) -> None:
    op.execute(_DROP_INVALID.format(name=name))
    op.create_index(name, "guard_job", columns, postgresql_where=sa.text(rows), if_not_exists=True)


def downgrade() -> None:
    """Put the wide ones back."""
    if op.get_context().dialect.name != "postgresql":
        return
    op.drop_index("guard_job_waiting", "guard_job")
    for name, columns, wide, _ in _INDEXES:
        op.drop_index(name, "guard_job")
        op.create_index(name, "guard_job", columns, postgresql_where=None if wide is None else sa.text(wide))
