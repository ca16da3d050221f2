"""How Alembic runs the migrations: on the connection it is handed, or into text where there is none."""

from __future__ import annotations

from alembic import context

from celery_guard.store.sql.schema import VERSION_TABLE
from celery_guard.store.sql.tables import metadata

config = context.config

if context.is_offline_mode():
    context.configure(
        dialect_name=config.attributes["dialect"],
        target_metadata=metadata,
        version_table=VERSION_TABLE,
        literal_binds=True,
    )
else:
    context.configure(connection=config.attributes["connection"], target_metadata=metadata, version_table=VERSION_TABLE)

with context.begin_transaction():
    context.run_migrations()
