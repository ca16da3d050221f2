"""Statements of an attempt: claim, renew, settle, and what was told.

Each move compares what its caller believes about the row in the same statement that writes it. A statement that matched
no row moved nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import Any

from sqlalchemy import (
    ColumnElement,
    FromClause,
    Integer,
    LargeBinary,
    SmallInteger,
    Text,
    and_,
    case,
    func,
    insert,
    literal,
    literal_column,
    null,
    or_,
    select,
    tuple_,
    update,
)
from sqlalchemy.sql.dml import Insert, Update
from sqlalchemy.sql.selectable import Select

from celery_guard.job.state import Kind, Reason, State
from celery_guard.store.answers import Lease
from celery_guard.store.sql.clock import now
from celery_guard.store.sql.tables import failure, job, payload, result

from . import ended, fixed, given, number, one_of

__all__ = [
    "RENEWED",
    "Beside",
    "Compare",
    "Fate",
    "beside",
    "claim",
    "claim_returning",
    "failed",
    "following",
    "move",
    "move_at_once",
    "move_returning",
    "note",
    "noted",
    "outcome",
    "release",
    "renew",
    "renewed",
    "speak",
    "standing",
    "told",
    "written",
]

# -- claim ------------------------------------------------------------------------------------------------------------

_GRANTED = (
    job.c.fence, job.c.generation, job.c.attempts, job.c.crashes, job.c.retries, job.c.cancel, job.c.deadline,
    job.c.tenant, job.c.key_hash, job.c.correlation_id, job.c.holder, job.c.root_id, job.c.created,
    job.c.interruptions,
)  # fmt: skip


def claim() -> Update:
    """Take the job for one attempt. A follower is only taken once a relay has seen its holder end.

    A message that was carried for a task without a guard, and meets one that has it, is a job from here on: its sender did not
    know the task.
    """
    due = and_(job.c.due <= now(), job.c.holder.is_(None))
    waits = and_(job.c.state == fixed(State.PENDING), or_(due, job.c.relay.is_not(None)))
    carried = and_(
        job.c.state == fixed(State.SUCCEEDED), job.c.kind == fixed(Kind.CARRIED), job.c.fence == literal_column("0")
    )
    return (
        update(job)
        .where(job.c.id == given("id"), or_(job.c.state == fixed(State.SENT), waits, carried))
        .values(
            state=fixed(State.RUNNING),
            kind=fixed(Kind.RUN),
            told=literal_column("0"),
            finished=null(),
            keep_until=null(),
            fence=job.c.fence + literal_column("1"),
            # one that was carried is counted from here on
            counted=case((job.c.counted < literal_column("0"), literal_column("0")), else_=job.c.counted),
            owner=given("owner"),
            attempts=job.c.attempts + literal_column("1"),
            publications=literal_column("0"),
            relay=null(),
            due=now() + number("lease"),
            started=now(),
            progress=null(),
        )
    )


def claim_returning() -> Update:
    """The same, answering with what the attempt has to know."""
    return claim().returning(*_GRANTED, now())


def standing() -> Select[Any]:
    """What an attempt has to know, and why it may not be one."""
    return select(*_GRANTED, now(), job.c.state, job.c.reason, job.c.owner, job.c.told, job.c.relay).where(
        job.c.id == given("id")
    )


def speak() -> Update:
    """Become the one delivery that tells Celery the end that was read, and have a lease's time for it."""
    same = and_(job.c.state == given("state"), job.c.fence == number("fence"))
    until = now() + number("lease")
    return (
        update(job)
        .where(job.c.id == given("id"), ended(), same, job.c.told == literal_column("0"), job.c.relay.is_not(None))
        .values(relay=null(), due=case((job.c.due < until, until), else_=job.c.due))
    )


# -- renew ------------------------------------------------------------------------------------------------------------


def _owned(leases: list[Lease]) -> ColumnElement[bool]:
    return and_(job.c.state == fixed(State.RUNNING), tuple_(job.c.id, job.c.fence, job.c.owner).in_(leases))


def renew(leases: list[Lease], lease: int, progress: Mapping[Lease, str]) -> Update:
    """Start the leases anew, and write what the attempts of some have said of their progress."""
    renewal = update(job).where(_owned(leases)).values(due=now() + lease)
    said = [
        (and_(job.c.id == id, job.c.fence == fence, job.c.owner == owner), literal(text))
        for (id, fence, owner), text in progress.items()
    ]
    return renewal.values(progress=case(*said, else_=job.c.progress)) if said else renewal


#: What is answered of a lease that was renewed.
RENEWED = (job.c.id, job.c.fence, job.c.cancel)


def renewed(leases: list[Lease]) -> Select[Any]:
    """The leases that are still their owners', where a renewal cannot answer that itself."""
    return select(*RENEWED).where(_owned(leases))


# -- settle -----------------------------------------------------------------------------------------------------------


class Compare(Enum):
    """What the row must still say for a move to be written."""

    #: The attempt's (fence, owner); also where its lease lapsed and nobody claimed since.
    OWNER = "owner"
    #: The token of the relay that has taken it.
    RELAY = "relay"
    #: All that the sweep saw: state and why, fence, owner, and still due.
    LAPSE = "lapse"
    #: Nothing has happened to it yet.
    NEW = "new"
    #: Its outcome is unknown, since this fence.
    UNKNOWN = "unknown"


class Fate(Enum):
    """Where a move leads, as far as its statement differs."""

    WAITS = "waits"
    PARKED = "parked"
    ENDS = "ends"
    #: The same, and the key is free.
    ENDS_FREE = "ends free"
    #: It has succeeded, and no more is said of it: most attempts, and so the shape with the fewest values.
    SUCCEEDS = "succeeds"


class Beside(Enum):
    """What is written beside the row."""

    RESULT = "result"
    FAILURE = "failure"
    PAYLOAD = "payload"


def _still(compare: Compare) -> ColumnElement[bool]:
    same = [job.c.id == given("id")]
    if compare is Compare.RELAY:
        same += [job.c.state == fixed(State.PENDING), job.c.relay == given("relay")]
        return and_(*same)
    same.append(job.c.fence == number("fence"))
    if compare is Compare.NEW:
        same += [job.c.state == fixed(State.PENDING), job.c.owner.is_(None)]
    elif compare is Compare.UNKNOWN:
        same.append(job.c.state == fixed(State.UNKNOWN))
    elif compare is Compare.LAPSE:
        same += [job.c.state == given("was"), func.coalesce(job.c.owner, "") == given("owner"), job.c.due <= now()]
        # without it, what was published, settled late, and published again would look the same
        same.append(func.coalesce(job.c.reason, "") == given("was_reason"))
    else:
        uncontested = and_(one_of((State.PENDING, State.SENT)), job.c.reason == fixed(Reason.LOST))
        same += [job.c.owner == given("owner"), or_(job.c.state == fixed(State.RUNNING), uncontested)]
    return and_(*same)


def move(fate: Fate, compare: Compare) -> Update:
    """Write where an attempt, or a wait, has led."""
    values: dict[str, Any] = {"relay": null(), "told": given("told", SmallInteger)}
    if fate is Fate.SUCCEEDS:
        values.update(state=fixed(State.SUCCEEDED), reason=null(), failure_class=null(), cause=null())
        values["interruptions"] = literal_column("0")
    else:
        for name in ("state", "reason", "failure_class", "cause"):
            values[name] = given(name)
        values["attempts"] = job.c.attempts - given("uncharged", Integer)
        values["crashes"] = job.c.crashes + given("crashed", Integer)
        values["retries"] = job.c.retries + given("retried", Integer)
        # one more, as many as before, or none any more
        values["interruptions"] = job.c.interruptions * given("kept", Integer) + given("interrupted", Integer)
        values["progress"] = func.coalesce(given("progress", Text), job.c.progress)
    if fate is Fate.WAITS:
        another = case((func.coalesce(given("task"), job.c.task) != job.c.task, job.c.task))
        values = {"counted_as": func.coalesce(job.c.counted_as, another), **values}
        values["due"] = now() + number("delay")
        values["generation"] = job.c.generation + given("regenerated", Integer)
        for name in ("task", "queue", "kind"):
            values[name] = func.coalesce(given(name), job.c[name])
    elif fate is Fate.PARKED:
        values["due"] = null()
    else:
        values["finished"] = now()
        values["keep_until"] = now() + number("keep")
        # Without tell_within nobody has to look at the row again.
        values["due"] = now() + number("tell_within")
        if fate is Fate.ENDS_FREE:
            values["held_key"] = null()
    # In this order: MySQL reads what it has already assigned.
    return update(job).where(_still(compare)).ordered_values(*((job.c[name], value) for name, value in values.items()))


def move_returning(fate: Fate, compare: Compare) -> Update:
    """The same, answering whether others wait for the outcome."""
    return move(fate, compare).returning(job.c.followers)


def move_at_once(fate: Fate, compare: Compare, *besides: Beside) -> Select[Any]:
    """PostgreSQL: the move and all that is written beside it, in one statement."""
    moved = move(fate, compare).returning(job.c.id, job.c.generation, job.c.attempts, job.c.followers).cte("moved")
    answer: Select[Any] = select(moved.c.followers)
    for what in besides:
        answer = answer.add_cte(_beside(what, moved).cte(what.value))
    return answer


def beside(what: Beside) -> Insert:
    """What is written beside a row that was moved in the same transaction."""
    row = select(job.c.id, job.c.generation, job.c.attempts).where(job.c.id == given("id")).subquery("moved")
    return _beside(what, row)


def _beside(what: Beside, moved: FromClause) -> Insert:
    row: dict[str, ColumnElement[Any]]
    if what is Beside.RESULT:
        table = result
        row = {
            "body": given("result_body", LargeBinary),
            "content_type": given("content_type"),
            "content_encoding": given("content_encoding"),
        }
    elif what is Beside.PAYLOAD:
        table = payload
        row = {
            "generation": moved.c.generation,
            "body": given("body", LargeBinary),
            "headers": given("headers", Text),
            "delivery": given("delivery", Text),
        }
    else:
        table = failure
        row = _failure(func.coalesce(given("attempt", Integer), moved.c.attempts))
        row["retried"] = given("retried", SmallInteger)
    new = select(moved.c.id, *row.values()).select_from(moved)
    return insert(table).from_select(["job", *row], new, include_defaults=False)


def _failure(attempt: ColumnElement[int]) -> dict[str, ColumnElement[Any]]:
    return {
        "number": number("number"),
        "at": now(),
        "fence": number("failure_fence"),
        "attempt": attempt,
        "failure_class": given("failure_class"),
        "type_name": given("type_name"),
        "message": given("message", Text),
        "traceback": given("traceback", Text),
        "cause": given("cause"),
        "worker": given("worker"),
        "truncated": given("truncated", SmallInteger),
    }


def note() -> Insert:
    """A failure that moves nothing, of a job that exists."""
    row = _failure(given("attempt", Integer))
    new = select(job.c.id, *row.values()).where(job.c.id == given("id"))
    return insert(failure).from_select(["job", *row], new, include_defaults=False)


def noted() -> Select[Any]:
    """Whether a failure is there, by its number."""
    return select(failure.c.number).where(failure.c.job == given("id"), failure.c.number == number("number"))


def written() -> Select[Any]:
    """How the row stands, to see whether a move without a failure whose answer was lost was written."""
    return select(job.c.state, job.c.reason, job.c.fence, func.coalesce(job.c.owner, "")).where(job.c.id == given("id"))


def following() -> Select[Any]:
    """Whether others wait for the outcome, where a move cannot answer that itself."""
    return select(job.c.followers).where(job.c.id == given("id"))


def release() -> Update:
    """The followers of a job that has ended are due."""
    return (
        update(job)
        .where(
            job.c.holder == given("id"),
            job.c.state == fixed(State.PENDING),
            job.c.reason == fixed(Reason.HELD_KEY),
            job.c.relay.is_(None),
        )
        .values(due=now())
    )


# -- told -------------------------------------------------------------------------------------------------------------


def outcome() -> Select[Any]:
    """How a job ended, and its result."""
    return (
        select(
            job.c.state, job.c.reason, job.c.failure_class,
            result.c.body, result.c.content_type, result.c.content_encoding,
        )
        .select_from(job.outerjoin(result, result.c.job == job.c.id))
        .where(job.c.id == given("id"))
    )  # fmt: skip


def failed(latest: bool) -> Select[Any]:
    """The failures of a job, oldest first; or the one that decided."""
    found = select(
        failure.c.failure_class, failure.c.type_name, failure.c.message, failure.c.traceback, failure.c.cause,
        failure.c.worker, failure.c.truncated, failure.c.fence, failure.c.attempt, failure.c.at,
    ).where(failure.c.job == given("id"))  # fmt: skip
    if not latest:
        return found.order_by(failure.c.at, failure.c.fence, failure.c.attempt, failure.c.number)
    decided = failure.c.failure_class != literal_column("'superseded'")
    return (
        found.where(decided)
        .order_by(failure.c.at.desc(), failure.c.fence.desc(), failure.c.attempt.desc(), failure.c.number.desc())
        .limit(literal_column("1"))
    )


def told(jobs: list[tuple[str, int]]) -> Update:
    """Celery knows how these ended: nobody has to look at them again."""
    return (
        update(job)
        .where(ended(), tuple_(job.c.id, job.c.fence).in_(jobs))
        .values(told=literal_column("1"), due=null(), relay=null())
    )
