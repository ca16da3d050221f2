"""What the sweep asks of the store: what has lapsed, what may be lost, what may go."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from datetime import timedelta

from sqlalchemy.engine import Connection

from celery_guard.job.instant import microseconds
from celery_guard.job.row import Attempt
from celery_guard.job.state import State
from celery_guard.store.calls import expired

from . import audit, rows
from .count import fold_rows
from .statements import sweep as statements
from .tables import job

__all__ = ["defer", "overdue", "retain", "retain_quarantined"]


def overdue(connection: Connection, state: State, limit: int, margin: timedelta = timedelta(0)) -> list[Attempt]:
    """Running jobs whose lease has ended, or sent ones that nobody claimed in time."""
    found = connection.execute(statements.overdue(state, limit, microseconds(margin)))
    return [rows.attempt(row) for row in found.mappings()]


def defer(connection: Connection, ids: Sequence[str], delay: timedelta) -> int:
    """Look at suspects again after the delay, if they still are; how many were."""
    return connection.execute(statements.defer(ids, microseconds(delay))).rowcount


def retain(connection: Connection, limit: int, *, skip_locked: bool) -> int:
    """Delete jobs whose time is over, with all that belongs to them; how many went."""
    gone = list(connection.execute(statements.over(limit, skip_locked)))
    ids = [row.id for row in gone]
    if ids:
        fold_rows(connection, ids)
        for table in (*statements.BELONGINGS, job):
            connection.execute(statements.forget(table, ids))
        letters = Counter((row.task, row.tenant) for row in gone if row.state == State.DEAD)
        if letters:
            audit.append(connection, [expired(task, tenant, number) for (task, tenant), number in letters.items()])
    connection.execute(statements.forget_silent())
    connection.execute(statements.forget_handled())
    return len(ids)


def retain_quarantined(connection: Connection, limit: int, keep: timedelta) -> int:
    """Delete messages that have been in quarantine for long enough; how many went."""
    numbers = list(connection.execute(statements.set_aside_before(limit, microseconds(keep))).scalars())
    return connection.execute(statements.forget_messages(numbers)).rowcount if numbers else 0
