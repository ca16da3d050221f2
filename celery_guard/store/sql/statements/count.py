"""Statements of counting: what rows say, what is written beside them, and putting both together.

A row says how often its job was claimed, failed, crashed and so on since ``counted``, a fence. Once it has ended, the sweep adds all of it
to ``guard_count`` and writes -1: in one transaction, so that at every moment totals and rows together say each thing once. So a
reading looks at the totals and at the few rows that are not in them yet, however many jobs are kept.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from sqlalchemy import (
    CTE,
    BigInteger,
    ColumnElement,
    FromClause,
    String,
    and_,
    case,
    cast,
    delete,
    func,
    insert,
    literal,
    literal_column,
    or_,
    select,
    tuple_,
    union_all,
    update,
)
from sqlalchemy.dialects import mysql, postgresql
from sqlalchemy.sql.dml import Delete, Insert, Update
from sqlalchemy.sql.selectable import CompoundSelect, Select

from celery_guard.job.state import ENDED, Kind, State
from celery_guard.job.tally import BOUNDS, INSTANTS, Count
from celery_guard.store.sql.clock import now
from celery_guard.store.sql.tables import count, failure, job

from . import Among, fixed, given, one_of

__all__ = [
    "COUNTED",
    "ENDED_UNCOUNTED",
    "IS_LETTER",
    "IS_UNKNOWN",
    "LIVE",
    "MEASURES",
    "add",
    "beside",
    "counted",
    "drop_parts",
    "failed",
    "folded",
    "measured",
    "parts",
    "publications",
    "publications_of",
    "scheduled",
    "standing",
    "still_uncounted",
    "uncounted",
    "written",
]

_SECOND = 1_000_000
#: States of rows that somebody still has to look at, and that are so in the index of what is due.
_WAITING = (State.PENDING, State.SENT, State.RUNNING)
#: As the index of causes has them: a condition that a database recognizes.
_LETTERS = (State.DEAD, State.UNKNOWN, State.DROPPED, State.RESOLVED)
#: Records that are no failures of an attempt that counts.
_NO_FAILURE = ("control", "superseded")
_ZERO = literal_column("0", BigInteger)

#: Rows whose totals are in ``guard_count``; and all others, in three parts, each found by an index.
COUNTED = job.c.counted < _ZERO
LIVE = and_(one_of(_WAITING), job.c.due.is_not(None))
IS_LETTER = one_of(_LETTERS)
IS_UNKNOWN = and_(IS_LETTER, job.c.state == fixed(State.UNKNOWN))
ENDED_UNCOUNTED = and_(job.c.counted >= _ZERO, job.c.finished.is_not(None))


def _ours() -> ColumnElement[bool]:
    """Not a message of a task without a guard, which nobody counts."""
    return or_(job.c.kind == fixed(Kind.RUN), job.c.counted_as.is_not(None))


def _task(rows: FromClause = job) -> ColumnElement[str]:
    return func.coalesce(rows.c.counted_as, rows.c.task)


def _times(condition: ColumnElement[bool], value: ColumnElement[int] | None = None) -> ColumnElement[int]:
    return func.sum(case((condition, literal_column("1") if value is None else value), else_=_ZERO))


def _measures() -> dict[tuple[Count, str], ColumnElement[int]]:
    """What the rows of a group say together; a histogram's bound by its place."""
    ran = and_(job.c.finished.is_not(None), job.c.started.is_not(None))
    run = job.c.finished - job.c.started
    stopped = and_(job.c.state == fixed(State.CANCELLED), job.c.asked.is_not(None))
    stop = job.c.finished - job.c.asked
    found: dict[tuple[Count, str], ColumnElement[int]] = {
        (Count.ENQUEUED, ""): _times(job.c.replays == _ZERO),
        (Count.CLAIMED, ""): func.sum(job.c.fence - job.c.counted),
        (Count.CRASHED, ""): func.sum(job.c.crashes),
        (Count.RETRIED, ""): func.sum(job.c.retries),
        (Count.REFUSED, ""): func.sum(job.c.refusals),
        (Count.ENDED, ""): _times(job.c.finished.is_not(None)),
        (Count.RUN, ""): _times(ran),
        (Count.RUN_TIME, ""): _times(ran, run),
        (Count.CANCEL, ""): _times(stopped),
        (Count.CANCEL_TIME, ""): _times(stopped, stop),
    }
    for place, bound in enumerate(BOUNDS):
        within = literal(int(bound * _SECOND), BigInteger)
        found[Count.RUN_WITHIN, str(place)] = _times(and_(ran, run <= within))
        found[Count.CANCEL_WITHIN, str(place)] = _times(and_(stopped, stop <= within))
    succeeded = job.c.state == fixed(State.SUCCEEDED)
    found[Count.LAST_SUCCESS, ""] = func.max(case((succeeded, job.c.finished), else_=_ZERO))
    return found


#: The columns of a reading behind (what, task, state, reason, class).
MEASURES = tuple(_measures())


def measured(which: ColumnElement[bool]) -> Select[Any]:
    """What rows say that are not counted yet."""
    labels = (_task(), job.c.state, func.coalesce(job.c.reason, ""), func.coalesce(job.c.failure_class, ""))
    return (
        select(cast(literal(""), String), *labels, *_measures().values())
        .where(which, _ours(), job.c.counted >= _ZERO)
        .group_by(*labels)
    )


def failed(which: ColumnElement[bool]) -> Select[Any]:
    """The failed attempts of rows that are not counted yet, by class: how many, and how many of them were answered by another run."""
    none = cast(literal(""), String)
    first, *rest = (func.count(), func.sum(failure.c.retried), *(_ZERO for _ in MEASURES[2:]))
    return (
        select(cast(literal(Count.FAILED.value), String), _task(), none, none, failure.c.failure_class, first, *rest)
        .select_from(job.join(failure, failure.c.job == job.c.id))
        .where(
            which, _ours(), job.c.counted >= _ZERO, failure.c.fence >= job.c.counted, failure.c.failure_class.not_in(_NO_FAILURE)
        )
        .group_by(_task(), failure.c.failure_class)
    )  # fmt: skip


def scheduled(which: ColumnElement[bool]) -> Select[Any]:
    """When a job of each schedule last succeeded, of rows that are not counted yet."""
    none = cast(literal(""), String)
    first, *rest = (func.max(job.c.finished), *(_ZERO for _ in MEASURES[1:]))
    return (
        select(cast(literal(Count.SCHEDULE_SUCCESS.value), String), job.c.schedule, none, none, none, first, *rest)
        .where(which, job.c.counted >= _ZERO, job.c.state == fixed(State.SUCCEEDED), job.c.schedule.is_not(None))
        .group_by(job.c.schedule)
    )


def counted() -> CompoundSelect[Any]:
    """Everything that was ever counted: one statement, so one moment."""
    total, *rest = (func.sum(count.c.total), *(_ZERO for _ in MEASURES[1:]))
    labels = (count.c.what, count.c.task, count.c.state, count.c.reason, count.c.failure_class)
    totals = select(*labels, total, *rest).group_by(*labels)
    rows = [of(which) for which in (LIVE, IS_UNKNOWN, ENDED_UNCOUNTED) for of in (measured, failed)]
    return union_all(totals, *rows, scheduled(ENDED_UNCOUNTED))


def uncounted(limit: int, skip_locked: bool) -> Select[Any]:
    """Jobs that have ended and are not counted yet. Messages of tasks without a guard too: they say nothing, and are not looked at again."""
    found = select(job.c.id).where(ENDED_UNCOUNTED, one_of(ENDED)).order_by(job.c.counted, job.c.finished).limit(limit)
    return found.with_for_update(skip_locked=skip_locked)


def still_uncounted(ids: Collection[str]) -> Select[Any]:
    """Which of these are not counted yet, and which schedule sent each; locked, so that nobody else adds them up."""
    found = select(job.c.id, job.c.schedule).where(Among(job.c.id, ids), job.c.counted >= _ZERO)
    return found.order_by(job.c.id).with_for_update()


def folded(ids: Collection[str]) -> Update:
    """All that these rows say is in the totals."""
    return update(job).where(Among(job.c.id, ids)).values(counted=literal_column("-1"))


def add(dialect: str, totals: Sequence[Mapping[str, Any]]) -> Any:
    """Add to totals, each a row of the table; of an instant, keep the later one."""
    if dialect in ("mysql", "mariadb"):
        new = mysql.insert(count).values(list(totals))
        return new.on_duplicate_key_update(total=_sum(new.inserted.total))
    written = postgresql.insert(count).values(list(totals))
    return written.on_conflict_do_update(
        index_elements=list(count.primary_key), set_={"total": _sum(written.excluded.total)}
    )


def _sum(new: ColumnElement[int]) -> ColumnElement[int]:
    instant = count.c.what.in_([fixed(what) for what in INSTANTS])
    return case((and_(instant, new > count.c.total), new), (instant, count.c.total), else_=count.c.total + new)


def written() -> Insert:
    """A part: something that no row says."""
    row: dict[str, Any] = {name: given(name) for name in ("part", "what", "task")}
    row |= {name: literal_column("''") for name in ("state", "reason", "failure_class")}
    # inline: nothing of what was written is asked back
    return insert(count).values({**row, "total": given("total", BigInteger)}).inline()


def beside() -> Insert:
    """The same, of a job that exists."""
    none = literal_column("''", String)
    row: list[ColumnElement[Any]] = [
        given("part"),
        given("what"),
        _task(),
        none,
        none,
        none,
        literal_column("1", BigInteger),
    ]
    found = select(*row).where(job.c.id == given("id"))
    return insert(count).from_select([column.name for column in count.c], found, include_defaults=False)


def parts(limit: int, skip_locked: bool) -> Select[Any]:
    """Parts that are to be put together."""
    found = select(count).where(count.c.part != literal_column("''")).order_by(count.c.part).limit(limit)
    return found.with_for_update(skip_locked=skip_locked)


def drop_parts(keys: Sequence[tuple[str, str, str]]) -> Delete:
    """Parts that were put together."""
    return delete(count).where(tuple_(count.c.part, count.c.what, count.c.task).in_(keys))


def publications(part: str, token: str, ids: Collection[str]) -> Insert:
    """A part a task: how many of these are about to be marked as published."""
    theirs = (Among(job.c.id, ids), job.c.relay == token, job.c.state == fixed(State.PENDING), _ours())
    return _published(literal(part), job, *theirs)


def publications_of(moved: CTE) -> Insert:
    """The same for rows that are marked in this very statement: their task, ``counted_as``, kind, and the state that they are in now."""
    carried = and_(moved.c.kind == fixed(Kind.CARRIED), moved.c.counted_as.is_not(None))
    return _published(given("part"), moved, or_(moved.c.state == fixed(State.SENT), carried))


def _published(part: ColumnElement[Any], rows: FromClause, *which: ColumnElement[bool]) -> Insert:
    none = literal_column("''", String)
    task = _task(rows)
    found = (
        select(part, literal(Count.PUBLISHED.value), task, none, none, none, func.count()).where(*which).group_by(task)
    )
    return insert(count).from_select([column.name for column in count.c], found, include_defaults=False)


def standing() -> CompoundSelect[Any]:
    """What has not ended, and what is dead: (state, queue, task, how many, age of the oldest, how many with a live lease)."""
    leased = _times(and_(job.c.state == fixed(State.RUNNING), job.c.due > now()))
    since_when = case(
        (job.c.state == fixed(State.SENT), job.c.sent),
        (job.c.state == fixed(State.RUNNING), job.c.started),
        (job.c.due <= now(), job.c.due),
    )
    return union_all(
        *(
            select(
                job.c.state, job.c.queue, _task(), func.count(), func.coalesce(now() - func.min(since), _ZERO), leased
            )
            .where(which, _ours())
            .group_by(job.c.state, job.c.queue, _task())
            for which, since in (
                (LIVE, since_when),
                (IS_UNKNOWN, job.c.started),
                (and_(IS_LETTER, job.c.state == fixed(State.DEAD)), job.c.finished),
            )
        )
    )
