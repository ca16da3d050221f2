"""Statements of the audit: append, read, and forget what is old. There is none that changes a row."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

from sqlalchemy import delete, insert, select
from sqlalchemy.sql.dml import Delete, Insert
from sqlalchemy.sql.selectable import Select

from celery_guard.store.sql.clock import now
from celery_guard.store.sql.tables import audit

__all__ = ["append", "forget", "listed", "old", "written"]


def append() -> Insert:
    """One row; the rest of it is given."""
    return insert(audit).values(at=now())


def written(tokens: Collection[str]) -> Select[Any]:
    """Which rows of these tokens are there."""
    return select(audit.c.token).where(audit.c.token.in_(tokens))


def listed(wanted: Sequence[tuple[str, str]], since: int | None, limit: int, after: int | None) -> Select[Any]:
    """Rows, newest first; ``wanted`` are names of columns with their values, ``since`` an age in microseconds."""
    found = select(audit).order_by(audit.c.number.desc()).limit(limit)
    for name, value in wanted:
        found = found.where(audit.c[name] == value)
    if since is not None:
        found = found.where(audit.c.at >= now() - since)
    return found if after is None else found.where(audit.c.number < after)


def old(keep: int, limit: int) -> Select[Any]:
    """Numbers of rows that are older than a duration in microseconds."""
    return select(audit.c.number).where(audit.c.at < now() - keep).order_by(audit.c.at).limit(limit)


def forget(numbers: Collection[int]) -> Delete:
    """Delete rows."""
    return delete(audit).where(audit.c.number.in_(numbers))
