"""Statements of the relay: take what is due, and say what became of it.

What is due is found in two searches of one index, (state, due): jobs that wait, and ended jobs that Celery was not told about.
Neither reads a row that is not due, so neither grows with the table.

PostgreSQL takes and marks a batch in one statement each, which is a transaction and a round trip (:func:`take_at_once`,
:func:`mark_at_once`); elsewhere the same is several statements in one transaction.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

from sqlalchemy import (
    ARRAY,
    BigInteger,
    ColumnElement,
    String,
    and_,
    any_,
    case,
    cast,
    exists,
    func,
    literal,
    literal_column,
    null,
    or_,
    select,
    true,
    union_all,
    update,
)
from sqlalchemy.dialects.postgresql import aggregate_order_by
from sqlalchemy.sql.dml import Update
from sqlalchemy.sql.selectable import Select

from celery_guard.job.instant import microseconds
from celery_guard.job.state import ENDED, Kind, State
from celery_guard.store.bounds import KEEP_CARRIED
from celery_guard.store.sql.clock import now
from celery_guard.store.sql.tables import job, payload

from . import Among, doubled, ended, fixed, given, number, one_of
from .count import publications_of

__all__ = [
    "await_holders",
    "candidates",
    "due_now",
    "mark_at_once",
    "next_due",
    "postpone",
    "published",
    "spoken_again",
    "states_of_holders",
    "take",
    "take_at_once",
    "taken",
    "taken_again",
    "travelled",
    "wait_on",
]

_holder = job.alias("holder")


def _state_of_holder() -> ColumnElement[Any]:
    """The state of the job that this one follows; NULL where there is none. Not EXISTS: that may be planned as a scan of all."""
    return select(_holder.c.state).where(_holder.c.id == job.c.holder).correlate(job).scalar_subquery()


def candidates(waiting: bool, limit: int | ColumnElement[int], skip_locked: bool) -> Select[Any]:
    """What is due, oldest first: (id, due, the job that it follows, that job's state)."""
    found = (
        select(job.c.id, job.c.due, job.c.holder, _state_of_holder().label("holders"))
        .where(job.c.state == fixed(State.PENDING) if waiting else ended(), job.c.due <= now())
        .order_by(job.c.due)
        .limit(limit)
    )
    return found.with_for_update(skip_locked=True) if skip_locked else found


def take(token: str, ids: Collection[str], hold: int) -> Update:
    """Put the token on rows that are still due."""
    return (
        update(job)
        .where(Among(job.c.id, ids), job.c.due <= now(), or_(job.c.state == fixed(State.PENDING), ended()))
        .values(relay=token, due=now() + hold)
    )


#: What a relay has to know to publish a row that it has taken, without the message.
_OUTGOING = (
    job.c.id, job.c.task, job.c.queue, job.c.kind, job.c.state, job.c.reason, job.c.generation, job.c.retries,
    job.c.publications, job.c.refusals, job.c.tenant, job.c.holder, job.c.fence,
    case((and_(job.c.state == fixed(State.PENDING), job.c.deadline <= now()), 1), else_=0).label("expired"),
)  # fmt: skip
_MESSAGE = (payload.c.body, payload.c.headers, payload.c.delivery)


def taken(token: str, ids: Collection[str]) -> Select[Any]:
    """What a relay has to know to publish the rows that it has taken; a row whose message is gone comes too, to be ended."""
    return _with_messages(Among(job.c.id, ids), job.c.relay == token)


def _with_messages(*which: ColumnElement[bool]) -> Select[Any]:
    message = and_(payload.c.job == job.c.id, payload.c.generation == job.c.generation)
    return select(*_OUTGOING, *_MESSAGE).outerjoin_from(job, payload, message).where(*which)


def take_at_once() -> Select[Any]:
    """PostgreSQL: find what is due, put the token on it and read it, in one statement.

    Before the columns of a row stand two more: whether something that is due follows a job that goes on, since then nothing was taken and
    one row says so; and in the first row alone the ids in the order of their dues. Rows are as they are when they are locked, messages as they
    were when the statement began: one that was written in between is missing here, and has to be asked for again.

    Written so that no plan can read a table whatever the statistics say, since it is kept while the table grows: nothing is joined with the
    table of jobs, and messages are looked for one by one.
    """
    limit = number("limit")
    waiting, untold = candidates(True, limit, True).cte("waiting"), candidates(False, limit, True).cte("untold")
    goes_on = exists(select(waiting.c.id).where(waiting.c.holders.not_in([fixed(state) for state in sorted(ENDED)])))
    held = select(goes_on.label("held")).cte("held")
    found = union_all(select(waiting.c.id, waiting.c.due), select(untold.c.id, untold.c.due)).subquery("found")
    oldest = select(found.c.id, found.c.due).order_by(found.c.due).limit(limit)
    first = oldest.where(~select(held.c.held).scalar_subquery()).subquery("first")
    in_order = select(func.array_agg(aggregate_order_by(first.c.id, first.c.due)).label("ids")).cte("in_order")
    ids = cast(select(in_order.c.ids).scalar_subquery(), ARRAY(String))
    taken = (
        update(job)
        .where(job.c.id == any_(ids))
        .values(relay=given("token"), due=now() + number("hold"))
        .returning(*_OUTGOING)
        .cte("taken")
    )
    its = and_(payload.c.job == taken.c.id, payload.c.generation == taken.c.generation)
    message = select(*_MESSAGE).where(its).limit(literal_column("1")).lateral("message")
    once = case((func.row_number().over() == literal_column("1"), ids))
    return select(held.c.held, once, *taken.c, *message.c).select_from(
        held.outerjoin(taken, true()).outerjoin(message, true())
    )


def taken_again() -> Select[Any]:
    """PostgreSQL: :func:`taken`, of any number of ids."""
    return _with_messages(_one_of_given(), job.c.relay == given("token"))


def _one_of_given() -> ColumnElement[bool]:
    return job.c.id == any_(given("ids", ARRAY(String)))


def await_holders(holders: Collection[str]) -> Update:
    """Have jobs that others wait for release them when they end."""
    return update(job).where(Among(job.c.id, holders), ~ended()).values(followers=literal_column("1"))


def wait_on(followers: Collection[str], pause: int) -> Update:
    """Followers whose holders have not ended are looked at again after the pause, if nobody releases them before."""
    return (
        update(job)
        .where(Among(job.c.id, followers), job.c.state == fixed(State.PENDING), job.c.due <= now())
        .values(due=now() + pause)
    )


def states_of_holders(followers: Collection[str]) -> Select[Any]:
    """How the jobs stand that these follow: (follower, state), NULL where there is no such job any more."""
    return select(job.c.id, _state_of_holder()).where(Among(job.c.id, followers))


def due_now(ids: Collection[str]) -> Update:
    """Waiting jobs that need not wait any longer."""
    return (
        update(job)
        .where(Among(job.c.id, ids), job.c.state == fixed(State.PENDING), job.c.relay.is_(None))
        .values(due=now())
    )


def _taken_by(token: str, ids: Collection[str]) -> Any:
    return and_(Among(job.c.id, ids), job.c.relay == token)


def published(token: str, ids: Sequence[str], suspect_after: int) -> Update:
    """Waiting jobs whose message is on its way."""
    later = doubled(literal(suspect_after, BigInteger))
    return (
        update(job)
        .where(_taken_by(token, ids), job.c.state == fixed(State.PENDING), job.c.kind == fixed(Kind.RUN))
        # In this order: MySQL reads what it has already assigned.
        .ordered_values(
            (job.c.due, now() + later),
            (job.c.publications, job.c.publications + 1),
            (job.c.sent, now()),
            (job.c.state, fixed(State.SENT)),
            (job.c.relay, null()),
        )
    )


def travelled(token: str, ids: Sequence[str], _suspect_after: int) -> Update:
    """Carried messages that were published: their journey is over."""
    return (
        update(job)
        .where(_taken_by(token, ids), job.c.state == fixed(State.PENDING), job.c.kind == fixed(Kind.CARRIED))
        .values(
            state=fixed(State.SUCCEEDED),
            told=literal_column("1"),
            sent=now(),
            finished=now(),
            keep_until=now() + microseconds(KEEP_CARRIED),
            due=null(),
            relay=null(),
            # nobody counts it, so nobody has to look at it
            counted=literal_column("-1"),
        )
    )


def spoken_again(token: str, ids: Sequence[str], again_after: int) -> Update:
    """Ended jobs whose outcome is on its way to be told; the token stays, for the one claim that will tell it."""
    later = doubled(literal(again_after, BigInteger))
    return (
        update(job)
        .where(_taken_by(token, ids), ended())
        .ordered_values((job.c.due, now() + later), (job.c.publications, job.c.publications + 1), (job.c.sent, now()))
    )


def mark_at_once() -> Select[Any]:
    """PostgreSQL: :func:`published`, :func:`travelled` and :func:`spoken_again` in one statement, and the count of what was published; how
    many rows still carried the token.
    """
    carried = and_(job.c.state == fixed(State.PENDING), job.c.kind == fixed(Kind.CARRIED))
    later = now() + doubled(number("pause"))

    def either(when_carried: ColumnElement[Any], otherwise: ColumnElement[Any]) -> ColumnElement[Any]:
        return case((carried, when_carried), else_=otherwise)

    waits = job.c.state == fixed(State.PENDING)
    moved = (
        update(job)
        .where(_one_of_given(), job.c.relay == given("token"), or_(waits, ended()))
        .values(
            state=either(fixed(State.SUCCEEDED), case((waits, fixed(State.SENT)), else_=job.c.state)),
            due=either(null(), later),
            publications=either(job.c.publications, job.c.publications + 1),
            sent=now(),
            relay=case((ended(), job.c.relay)),
            told=either(literal_column("1"), job.c.told),
            finished=either(now(), job.c.finished),
            keep_until=either(now() + microseconds(KEEP_CARRIED), job.c.keep_until),
            # nobody counts it, so nobody has to look at it
            counted=either(literal_column("-1"), job.c.counted),
        )
        .returning(job.c.task, job.c.counted_as, job.c.kind, job.c.state)
        .cte("moved")
    )
    return select(func.count()).select_from(moved).add_cte(publications_of(moved).cte("published"))


def postpone(token: str, id: str, delay: int, refused: bool) -> Update:
    """Give a row back."""
    return (
        update(job)
        .where(_taken_by(token, [id]), or_(job.c.state == fixed(State.PENDING), ended()))
        .values(relay=null(), due=now() + delay, refusals=job.c.refusals + literal(int(refused)))
    )


def next_due() -> Select[Any]:
    """Now, and when each state that a relay looks at has its next row due: one look into the index for each."""
    looks: list[ColumnElement[Any]] = [now(), *map(_first_due, (State.PENDING, *sorted(ENDED)))]
    return select(*looks)


def _first_due(state: State) -> ColumnElement[int]:
    # Not min(): databases look for that in other indexes too, or read the whole range.
    first = (
        select(job.c.due).where(one_of([state]), job.c.due.is_not(None)).order_by(job.c.due).limit(literal_column("1"))
    )
    return first.scalar_subquery().label(state.value)
