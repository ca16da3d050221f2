"""Statements of listings: jobs among many, newest first, and what is asked of all jobs of a queue or a tenant.

PostgreSQL enters a row that is written anew into every index that holds it, and a job is written six times. So there the indexes of listings hold
only rows that are counted (``counted < 0``), which are written no more: one entry a job instead of six. Those that wait have one index, by
their age; those that run, are unknown, or have ended since the last sweep are few, and in the indexes of relay and sweep. A listing asks each of
these parts for its newest, in one statement, so at one moment: a job that moves meanwhile is in exactly one of them.

SQLite, MySQL and MariaDB write an index only where its columns change. There an index of a listing holds every row, and one search answers.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Any

from sqlalchemy import ColumnElement, and_, func, or_, select, union_all
from sqlalchemy.sql.selectable import CompoundSelect, Select

from celery_guard.job.state import ENDED, STANDING, State
from celery_guard.store.sql.clock import now
from celery_guard.store.sql.tables import STARTED_BEFORE, WAITING, job

from . import fixed, one_of
from .count import COUNTED, ENDED_UNCOUNTED, IS_LETTER, IS_UNKNOWN, LIVE

__all__ = ["counts", "jobs", "last_start"]

_RUNS = and_(job.c.state == fixed(State.RUNNING), job.c.due.is_not(None))
#: Which states are found in which part.
_PARTS = (
    (frozenset(WAITING), one_of(WAITING)),
    (frozenset({State.RUNNING}), _RUNS),
    (frozenset({State.UNKNOWN}), IS_UNKNOWN),
    (ENDED, ENDED_UNCOUNTED),
    (ENDED, COUNTED),
)


def _parts(states: Collection[State], apart: bool) -> Iterator[tuple[ColumnElement[bool], ...]]:
    """What to ask for, so that all jobs in these states (none: in any) are found, and each once."""
    chosen = (one_of(states),) if states else ()
    if not apart:
        yield chosen
        return
    for held, part in _PARTS:
        if not states or held.intersection(states):
            yield part, *chosen


def jobs(
    states: Sequence[State],
    wanted: Sequence[tuple[str, str]],
    ages: Sequence[tuple[str, int | None, int | None]],
    limit: int,
    after: str | None,
    tie: ColumnElement[Any],
    apart: bool,
) -> Select[Any]:
    """Jobs, newest first; ``wanted`` are names of columns with their values, ``ages`` are names of instants with how long ago
    they are at least and at most, in microseconds.

    ``tie`` orders what came at the same time. ``apart``: those that are counted have indexes of their own.
    """
    conditions = [job.c[name] == value for name, value in wanted]
    for name, least, most in ages:
        if least is not None:
            conditions.append(job.c[name] <= now() - least)
        if most is not None:
            conditions.append(job.c[name] >= now() - most)
    if after is not None:
        created, place = (
            select(column).select_from(job).where(job.c.id == after).correlate(None).scalar_subquery()
            for column in (job.c.created, tie)
        )
        # the first says where in an index to begin
        conditions += [job.c.created <= created, or_(job.c.created < created, tie < place)]
    pages = [
        select(job).where(*part, *conditions).order_by(job.c.created.desc(), tie.desc()).limit(limit)
        for part in _parts(states, apart)
    ]
    if len(pages) == 1:
        return pages[0]
    page = union_all(*(select(each.subquery()) for each in pages)).subquery("page")
    return select(page).order_by(page.c.created.desc(), page.c.id.desc()).limit(limit)


def counts(tenant: str | None, states: Collection[State], apart: bool) -> Select[Any]:
    """How many jobs are in each of these states; none: in each. Those that stand are found without looking at those that have ended well."""
    parts: Iterable[tuple[ColumnElement[bool], ...]]
    if states and STANDING.issuperset(states):
        parts = [(part, one_of(states)) for part in (LIVE, IS_LETTER)]
    else:
        parts = _parts(states, apart and tenant is not None)
    theirs = [] if tenant is None else [job.c.tenant == tenant]
    each = [select(job.c.state).where(*part, *theirs) for part in parts]
    found = union_all(*each).subquery("found")
    return select(found.c.state, func.count()).group_by(found.c.state)


def last_start(queue: str, apart: bool) -> Select[Any]:
    """When a job of the queue was last started."""
    theirs = (job.c.queue == queue, job.c.started.is_not(None))
    if not apart:
        return select(func.max(job.c.started)).where(*theirs)
    # as its index has them
    counted_or_waits = or_(COUNTED, one_of(STARTED_BEFORE))
    each: CompoundSelect[Any] = union_all(
        *(
            select(func.max(job.c.started).label("started")).where(*theirs, part)
            for part in (counted_or_waits, _RUNS, ENDED_UNCOUNTED)
        )
    )
    return select(func.max(each.subquery("each").c.started))
