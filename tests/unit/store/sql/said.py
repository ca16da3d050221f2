"""What a store asks of its database."""

from __future__ import annotations

from typing import Any

from sqlalchemy import event

from celery_guard.store.sql import SqlStore

__all__ = ["statements_of"]


def statements_of(store: SqlStore) -> list[str]:
    """What is asked of the database from here on, of either way to it: SQLAlchemy's connection and the driver's cursor."""
    said: list[str] = []
    event.listen(
        store._database.engine, "before_cursor_execute", lambda connection, cursor, text, *rest: said.append(text)
    )
    texts = store._database.texts
    of = texts.of

    def watched(*shape: Any) -> Any:
        text = of(*shape)
        said.append(text.sql)
        return text

    texts.of = watched  # type: ignore[method-assign, assignment]
    return said
