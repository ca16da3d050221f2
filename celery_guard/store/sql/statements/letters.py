"""Statements of dead letters: what failed alike, notes to it, and letters that are closed or deleted."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from sqlalchemy import and_, delete, distinct, func, insert, literal_column, or_, select, update
from sqlalchemy.sql.dml import Delete, Insert, Update
from sqlalchemy.sql.selectable import Select

from celery_guard.job.state import State
from celery_guard.store.sql.clock import now
from celery_guard.store.sql.tables import cause_note, failure, job, replay

from . import fixed, one_of

__all__ = [
    "add_note",
    "change_note",
    "close",
    "drop_note",
    "groups",
    "last_replays",
    "letters",
    "notes",
    "prospects",
    "types",
]


def groups(wanted: Collection[tuple[str, str]], limit: int) -> Select[Any]:
    """Dead letters by task and cause, the largest group first."""
    count = func.count()
    found = select(
        job.c.task, job.c.cause, count.label("count"), func.min(job.c.finished).label("first_at"),
        func.max(job.c.finished).label("last_at"), func.count(distinct(job.c.tenant)).label("tenants"),
        func.min(job.c.id).label("sample"),
    ).where(one_of((State.DEAD,)))  # fmt: skip
    for name, value in wanted:
        found = found.where(job.c[name] == value)
    return found.group_by(job.c.task, job.c.cause).order_by(count.desc(), job.c.task, job.c.cause).limit(limit)


def types(ids: Collection[str]) -> Select[Any]:
    """The exception types of failed attempts, the oldest first."""
    return (
        select(failure.c.job, failure.c.type_name)
        .where(failure.c.job.in_(ids))
        .order_by(failure.c.at, failure.c.fence, failure.c.attempt)
    )


def notes(causes: Collection[str]) -> Select[Any]:
    """Notes to causes."""
    return select(cause_note.c.cause, cause_note.c.note, cause_note.c.actor).where(cause_note.c.cause.in_(causes))


def last_replays(causes: Collection[str]) -> Select[Any]:
    """When a job of each cause was last sent again."""
    done = and_(replay.c.cause.in_(causes), replay.c.done.is_not(None))
    return select(replay.c.cause, func.max(replay.c.done)).where(done).group_by(replay.c.cause)


def change_note(cause: str, note: str, actor: str) -> Update:
    """Put another note to a cause that has one."""
    return update(cause_note).where(cause_note.c.cause == cause).values(note=note, actor=actor, at=now())


def add_note(cause: str, note: str, actor: str) -> Insert:
    """Put the first note to a cause."""
    return insert(cause_note).values(cause=cause, note=note, actor=actor, at=now())


def drop_note(cause: str) -> Delete:
    """Take a note away."""
    return delete(cause_note).where(cause_note.c.cause == cause)


def letters(ids: Collection[str]) -> Select[Any]:
    """Jobs that are about to be closed or deleted, locked in the order of their ids."""
    columns = (job.c.id, job.c.state, job.c.told, job.c.replays)
    return select(*columns).where(job.c.id.in_(ids)).order_by(job.c.id).with_for_update()


def close(ids: Collection[str], keep: int) -> Update:
    """Dead letters are resolved, and kept for a duration in microseconds."""
    return (
        update(job)
        .where(job.c.id.in_(ids), job.c.state == fixed(State.DEAD))
        .values(state=fixed(State.RESOLVED), keep_until=now() + keep, held_key=literal_column("NULL"))
    )


def prospects(ids: Collection[str]) -> Select[Any]:
    """What would keep jobs from being sent again: their state, and who holds their key."""
    holder = job.alias("holder_of_key")
    other = and_(holder.c.held_key == job.c.key_hash, or_(job.c.holder.is_(None), holder.c.id != job.c.holder))
    return (
        select(job.c.id, job.c.state, holder.c.id.label("holder"), holder.c.state.label("holder_state"))
        .outerjoin(holder, other)
        .where(job.c.id.in_(ids))
    )
