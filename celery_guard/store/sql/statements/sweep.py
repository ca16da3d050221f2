"""Statements of the sweep: leases that have ended, messages that may be lost, rows whose time is over."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from sqlalchemy import ColumnElement, Table, and_, delete, exists, select, update
from sqlalchemy.sql.dml import Delete, Update
from sqlalchemy.sql.selectable import Select

from celery_guard.job.instant import microseconds
from celery_guard.job.state import State
from celery_guard.store.bounds import KEEP_HANDLED, SILENT
from celery_guard.store.sql.clock import now
from celery_guard.store.sql.tables import checkpoint, failure, heartbeat, job, payload, quarantine, result, step

from . import Among, fixed

__all__ = [
    "BELONGINGS",
    "defer",
    "forget",
    "forget_handled",
    "forget_jobs",
    "forget_messages",
    "forget_silent",
    "over",
    "overdue",
    "set_aside_before",
]

#: What belongs to a job and goes with it.
BELONGINGS: tuple[Table, ...] = (payload, result, failure, step, checkpoint)


def overdue(state: State, limit: int, margin: int = 0) -> Select[Any]:
    """Jobs of one state that somebody has to look at, longest waiting first."""
    return (
        select(
            job.c.id, job.c.task, job.c.queue, job.c.state, job.c.reason, job.c.fence, job.c.owner, job.c.attempts,
            job.c.crashes, job.c.retries, job.c.publications, job.c.cancel, job.c.deadline, job.c.created, job.c.sent,
            job.c.started, job.c.due, _overtaken(margin).label("overtaken"), now().label("now"),
        )
        .where(job.c.state == fixed(state), job.c.due <= now())
        .order_by(job.c.due)
        .limit(limit)
    )  # fmt: skip


def _overtaken(margin: int) -> ColumnElement[bool]:
    """A job that was published later to the same queue is running, so that this one's message should have been met.

    Batches of two relays, and what workers have prefetched, overtake each other without loss: later by a margin. One that was in the broker
    before it was accepted says nothing: it may have been there for longer than this one.
    """
    later = job.alias("later")
    # Whatever runs is due at its lease's end; said, so that the index of what is due can be searched.
    running = and_(later.c.state == fixed(State.RUNNING), later.c.due.is_not(None))
    published = and_(later.c.sent > job.c.sent + margin, later.c.sent >= later.c.created)
    runs = and_(running, later.c.queue == job.c.queue, published)
    return and_(job.c.state == fixed(State.SENT), exists(select(later.c.id).where(runs).correlate(job)))


def defer(ids: Collection[str], delay: int) -> Update:
    """Look at suspects again later. One that was claimed or published meanwhile is none any more."""
    return (
        update(job)
        .where(Among(job.c.id, ids), job.c.state == fixed(State.SENT), job.c.due <= now())
        .values(due=now() + delay)
    )


def over(limit: int, skip_locked: bool) -> Select[Any]:
    """Jobs whose time is over."""
    columns = (job.c.id, job.c.state, job.c.task, job.c.tenant)
    found = select(*columns).where(job.c.keep_until <= now()).order_by(job.c.keep_until).limit(limit)
    return found.with_for_update(skip_locked=skip_locked)


def forget(table: Table, ids: Collection[str]) -> Delete:
    """Delete jobs, or what belongs to them."""
    if table is job:
        return delete(job).where(Among(job.c.id, ids), job.c.keep_until <= now())
    return delete(table).where(Among(table.c.job, ids))


def forget_jobs(table: Table, ids: Collection[str]) -> Delete:
    """Delete jobs, or what belongs to them, whatever time they had."""
    return delete(table).where(Among(job.c.id if table is job else table.c.job, ids))


def forget_silent() -> Delete:
    """Delete slots and processes that have not been heard of for long."""
    return delete(heartbeat).where(heartbeat.c.until < now() - microseconds(SILENT))


def forget_handled() -> Delete:
    """Delete messages from quarantine that were released or discarded long ago."""
    return delete(quarantine).where(quarantine.c.handled < now() - microseconds(KEEP_HANDLED))


def set_aside_before(limit: int, keep: int) -> Select[Any]:
    """Of the oldest messages in quarantine those that came before ``keep`` microseconds. Their numbers rise as they come."""
    oldest = select(quarantine.c.number, quarantine.c.received).order_by(quarantine.c.number).limit(limit).subquery()
    return select(oldest.c.number).where(oldest.c.received <= now() - keep)


def forget_messages(numbers: Collection[int]) -> Delete:
    """Delete messages in quarantine."""
    return delete(quarantine).where(quarantine.c.number.in_(numbers))
