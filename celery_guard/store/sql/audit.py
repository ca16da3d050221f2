"""Who did what and why: appended, read, and forgotten when it is old."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any

from sqlalchemy.engine import Connection, RowMapping

from celery_guard.job.audit import AuditEntry, NewAudit, Outcome
from celery_guard.job.instant import microseconds

from . import rows
from .statements import audit as statements

__all__ = ["append", "forget", "listed", "old"]

_TEXTS = ("entry", "actor", "role", "origin", "action", "target", "reason", "detail")


def append(connection: Connection, entries: Sequence[NewAudit]) -> None:
    """Append rows, but for those that an earlier try has written."""
    there = {*connection.execute(statements.written([entry.token for entry in entries])).scalars()}
    new = [_values(entry) for entry in entries if entry.token not in there]
    if new:
        connection.execute(statements.append(), new)


def listed(
    connection: Connection, wanted: Mapping[str, str | None], since: timedelta | None, limit: int, after: int | None
) -> list[AuditEntry]:
    """Rows, newest first."""
    filters = [(name, value) for name, value in wanted.items() if value is not None]
    age = None if since is None else microseconds(since)
    return [_entry(row) for row in connection.execute(statements.listed(filters, age, limit, after)).mappings()]


def old(connection: Connection, keep: timedelta, limit: int) -> list[int]:
    """Numbers of rows that are older, the oldest first."""
    return list(connection.execute(statements.old(microseconds(keep), limit)).scalars())


def forget(connection: Connection, numbers: Sequence[int]) -> int:
    """Delete rows; how many went."""
    return connection.execute(statements.forget(numbers)).rowcount


def _values(entry: NewAudit) -> dict[str, Any]:
    texts = {name: rows.storable(getattr(entry, name)) for name in _TEXTS}
    for name in ("actor", "role", "origin", "action"):
        texts[name] = texts[name][:255]
    return {**texts, "token": entry.token, "outcome": entry.outcome.value, "job": entry.job, "tenant": entry.tenant}


def _entry(row: RowMapping) -> AuditEntry:
    at = rows.instant(row["at"])
    assert at is not None
    texts = {name: row[name] or "" for name in _TEXTS}
    outcome = Outcome(row["outcome"])
    return AuditEntry(row["number"], at, outcome=outcome, job=row["job"], tenant=row["tenant"], **texts)
