"""Statements that accept jobs. A job is two rows, its message and itself.

PostgreSQL writes both in one statement. The others write the message first and the job second, so that no job is ever
seen without its message, even on a connection in autocommit. So it is with a job that comes back.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sqlalchemy import (
    JSON,
    BigInteger,
    ColumnElement,
    Integer,
    LargeBinary,
    Text,
    and_,
    case,
    cast,
    column,
    delete,
    exists,
    false,
    func,
    insert,
    literal_column,
    not_,
    null,
    select,
    text,
    true,
    update,
)
from sqlalchemy.dialects.postgresql import insert as upsert
from sqlalchemy.sql.dml import Delete, Insert, Update
from sqlalchemy.sql.selectable import CTE, Select

from celery_guard.job.state import Reason, State
from celery_guard.store.bounds import SLOTS
from celery_guard.store.sql.clock import now
from celery_guard.store.sql.tables import job, payload, store

from . import fixed, given, number

__all__ = [
    "CHANNEL",
    "KEYS_TRIED",
    "RESTS",
    "REST_CLASS",
    "accept",
    "accept_job",
    "accept_many",
    "call",
    "carry_on",
    "carry_on_at_once",
    "find",
    "has_message",
    "has_store",
    "identity",
    "keep_payload",
    "replace_payload",
    "try_key",
    "withdraw_payload",
]

#: Where PostgreSQL says that there may be work.
CHANNEL = "celery_guard"

#: PostgreSQL: relays that rest hold one of these advisory locks each, as (class, number), so that they are called.
REST_CLASS, RESTS = 0x67756172, range(SLOTS)

_WRITTEN_AS_GIVEN = (
    "id", "task", "queue", "tenant", "kind", "key_hash", "held_key", "fingerprint", "holder", "reason",
    "parent_id", "root_id", "group_id", "correlation_id",
)  # fmt: skip
_TIMES = ("delay", "deadline", "deadline_in")

#: PostgreSQL: for so many keys a transaction finds out at once whether another one is taking them.
KEYS_TRIED = 50


def _as_given(scheduled: bool) -> tuple[str, ...]:
    """What others send names no column that tables before revision 0008 do not have: a publisher may be newer than the tables."""
    return (*_WRITTEN_AS_GIVEN, "schedule") if scheduled else _WRITTEN_AS_GIVEN


def _new_job(
    scheduled: bool, in_broker: bool, source: Mapping[str, ColumnElement[Any]] | None = None
) -> dict[str, ColumnElement[Any]]:
    """What stands in a new row: as given with the statement, or in a row of ``source``."""
    names = _as_given(scheduled)
    if source is None:
        source = {name: given(name) for name in names} | {name: number(name) for name in _TIMES}
        source["priority"] = given("priority", Integer)
    row: dict[str, ColumnElement[Any]] = {name: source[name] for name in names}
    row["priority"] = source["priority"]
    row["state"] = fixed(State.PENDING)
    row["created"] = now()
    row["due"] = now() + source["delay"]
    if in_broker:
        # before it was accepted: nobody knows how long
        row["state"], row["sent"], row["due"] = fixed(State.SENT), now() - 1, now() + number("in_broker")
    row["deadline"] = case(
        (source["deadline_in"].is_(None), source["deadline"]),
        (source["deadline"] < now() + source["deadline_in"], source["deadline"]),
        else_=now() + source["deadline_in"],
    )
    return row


def _message() -> dict[str, ColumnElement[Any]]:
    return {
        "body": given("body", LargeBinary),
        "headers": given("headers", Text),
        "delivery": given("delivery", Text),
    }


def accept(keyed: bool, notify: bool, scheduled: bool, in_broker: bool) -> Select[Any]:
    """PostgreSQL: both rows, the hold on the key and the wake-up, in one statement.

    Answers (accepted id, holder's id, fingerprint, state, whether the key is free to be taken). Whoever takes a key takes
    a lock of its transaction on it first, without waiting for it. So a key that an open transaction is taking is
    ``free = false`` at once, where the unique index alone would make the second caller wait for the first one's end::

        A: takes the lock, inserts                                     commits
        B:                            the lock is taken: not free                 finds A's row: a duplicate
    """
    called = _called() if notify else null()
    row = _new_job(scheduled, in_broker)
    new = select(*row.values())
    if not keyed:
        accepted, letter = _both(row, new, _one_message())
        return select(accepted.c.id, null(), null(), null(), true(), called).add_cte(letter)
    key = given("held_key")
    holder = select(job.c.id, job.c.fingerprint, job.c.state).where(job.c.held_key == key).cte("holder")
    turn = select(case((exists(select(holder.c.id)), false()), else_=_free(key)).label("free")).cte("turn")
    accepted, letter = _both(row, new.select_from(turn).where(turn.c.free), _one_message())
    call = select(called).select_from(accepted).scalar_subquery()
    return (
        select(accepted.c.id, holder.c.id, holder.c.fingerprint, holder.c.state, turn.c.free, call)
        .select_from(turn.outerjoin(accepted, true()).outerjoin(holder, true()))
        .add_cte(letter)
    )


def accept_many(notify: bool, scheduled: bool) -> Select[Any]:
    """PostgreSQL: as :func:`accept`, for many jobs; answers with (place, accepted id, held, free) of each.

    They are given as one JSON array, in the order of their keys, so that the text is the same for any number of them.
    """
    jobs = _jobs_given(scheduled)
    held = exists(select(job.c.id).where(job.c.held_key == jobs.c.held_key))
    seen = select(jobs.c.place, jobs.c.id, jobs.c.held_key, held.label("held")).cte("seen")
    free = case((seen.c.held_key.is_(None), true()), (seen.c.held, false()), else_=_free(seen.c.held_key))
    turn = select(seen.c.place, seen.c.id, seen.c.held, free.label("free")).order_by(seen.c.place).cte("turn")
    row = _new_job(scheduled, False, dict(jobs.c))
    # All are written at one instant; a microsecond each keeps them in order. It is over before the statement is.
    row["created"], row["due"] = row["created"] + jobs.c.place, row["due"] + jobs.c.place
    new = select(*row.values()).select_from(jobs.join(turn, turn.c.place == jobs.c.place)).where(turn.c.free)
    body = func.decode(jobs.c.body, literal_column("'base64'"), type_=LargeBinary)
    letters = select(jobs.c.id, body.label("body"), jobs.c.headers, jobs.c.delivery)
    accepted, letter = _both(row, new.order_by(jobs.c.place), letters.cte("letters"))
    called = select(_called()).select_from(accepted).limit(1).cte("called") if notify else None
    answer = (
        select(turn.c.place, accepted.c.id, turn.c.held, turn.c.free)
        .select_from(turn.outerjoin(accepted, accepted.c.id == turn.c.id))
        .add_cte(letter)
    )
    return answer if called is None else answer.add_columns(select(called.c[0]).scalar_subquery())


def _jobs_given(scheduled: bool) -> CTE:
    names: list[Any] = [column(name, Text) for name in (*_as_given(scheduled), "body", "headers", "delivery")]
    numbers = [column(name, BigInteger) for name in ("place", "priority", *_TIMES)]
    table = func.json_to_recordset(cast(given("jobs"), JSON)).table_valued(*names, *numbers, name="given")
    return select(table.render_derived(with_types=True)).cte("jobs")


def _one_message() -> CTE:
    # A driver may send bytes untyped, and a CTE would take them for text.
    message = {**_message(), "body": cast(given("body", LargeBinary), LargeBinary)}
    return select(given("id").label("id"), *(value.label(name) for name, value in message.items())).cte("letters")


def _both(row: Mapping[str, Any], new: Select[Any], letters: CTE) -> tuple[CTE, CTE]:
    """Jobs, where their ids and their keys are free, and the messages of those that are."""
    accepted = upsert(job).from_select(list(row), new).on_conflict_do_nothing().returning(job.c.id).cte("accepted")
    names = tuple(_message())
    letter = upsert(payload).from_select(
        ["job", "generation", *names],
        select(accepted.c.id, literal_column("0"), *(letters.c[name] for name in names)).join_from(
            accepted, letters, letters.c.id == accepted.c.id
        ),
    )
    # A message without a job is what is left of a job that somebody deleted by hand.
    letter = letter.on_conflict_do_update(
        index_elements=["job", "generation"], set_={name: letter.excluded[name] for name in names}
    )
    return accepted, letter.cte("letter")


def _free(key: ColumnElement[Any]) -> ColumnElement[bool]:
    """Whether nobody else is taking the key, as far as this transaction asks.

    It asks for its first :data:`KEYS_TRIED` keys, and counts them in a setting that ends with it: a server has room for some
    64 locks a connection, and a transaction that takes more would fail for want of memory. For the others the unique index waits.
    """
    setting: ColumnElement[str] = literal_column("'celery_guard.keys'")
    so_far = func.coalesce(
        func.nullif(func.current_setting(setting, true()), literal_column("''")), literal_column("'0'")
    )
    counted = func.set_config(setting, cast(cast(so_far, Integer) + literal_column("1", Integer), Text), true())
    return case((cast(counted, Integer) > literal_column(str(KEYS_TRIED)), true()), else_=_try_lock(key))


def _try_lock(key: ColumnElement[Any]) -> ColumnElement[bool]:
    return func.pg_try_advisory_xact_lock(func.hashtextextended(key, literal_column("0")))


def _called() -> ColumnElement[Any]:
    """PostgreSQL: say that there may be work, if a relay rests.

    Transactions that have called commit one after the other, in the whole server, each with its wait for the disk. So nobody calls while no relay
    rests, and the lock that says so is kept to the end: a relay cannot rest until what it was not called for can be seen.
    """
    nobody_rests = [
        func.pg_try_advisory_xact_lock_shared(literal_column(str(REST_CLASS)), literal_column(str(rest)))
        for rest in RESTS
    ]
    return case((not_(and_(*nobody_rests)), func.pg_notify(CHANNEL, "")))


def call() -> Select[Any]:
    """PostgreSQL: say that there may be work, if a relay rests."""
    return select(_called())


def try_key() -> Select[Any]:
    """PostgreSQL: take this transaction's lock on a key, or say that another one has it."""
    return select(_try_lock(given("held_key")))


def keep_payload() -> Insert:
    """The message of a job that is about to be written with this generation."""
    return _insert_payload(given("id"), given("generation", Integer))


def accept_job(scheduled: bool, in_broker: bool) -> Insert:
    """A new job, whose message is written."""
    row = _new_job(scheduled, in_broker)
    return insert(job).from_select(list(row), select(*row.values()), include_defaults=False)


def withdraw_payload() -> Delete:
    """Take back a message whose job was not written. Where another has written it meanwhile, the message is that job's."""
    its = exists(select(job.c.id).where(job.c.id == given("id"), job.c.generation >= given("generation", Integer)))
    return delete(payload).where(_this_message(), ~its)


def replace_payload() -> Update:
    """The message of a job that was written where an older message without a job was found."""
    return update(payload).where(_this_message()).values(_message())


def _this_message() -> ColumnElement[bool]:
    return and_(payload.c.job == given("id"), payload.c.generation == given("generation", Integer))


def find(by_key: bool, locked: bool) -> Select[Any]:
    """Who has this id, or holds this key. ``locked``: as it is now, also in a transaction that sees the past."""
    found = select(job.c.id, job.c.fingerprint, job.c.state, job.c.reason, job.c.holder, job.c.generation).where(
        job.c.held_key == given("held_key") if by_key else job.c.id == given("id")
    )
    return found.with_for_update(read=True) if locked else found


def carry_on() -> Update:
    """A job that was handed over to others comes back under its id: it waits for the relay again."""
    return (
        update(job)
        .where(
            job.c.id == given("id"),
            job.c.state == fixed(State.PENDING),
            job.c.reason == fixed(Reason.HANDED_OVER),
            job.c.generation < given("generation", Integer),
        )
        # In this order: MySQL reads what it has already assigned.
        .ordered_values(
            (
                job.c.counted_as,
                func.coalesce(job.c.counted_as, case((job.c.task != given("task"), job.c.task))),
            ),
            (job.c.task, given("task")),
            (job.c.queue, given("queue")),
            (job.c.kind, given("kind")),
            (job.c.priority, given("priority", Integer)),
            (job.c.reason, fixed(Reason.REPLACED)),
            (job.c.generation, given("generation", Integer)),
            (job.c.due, now() + number("delay")),
            (job.c.relay, null()),
        )
    )


def carry_on_at_once(notify: bool) -> Select[Any]:
    """PostgreSQL: :func:`keep_payload`, :func:`carry_on` and the wake-up in one statement; answers with one row where it was moved."""
    moved = carry_on().returning(job.c.id, job.c.generation).cte("moved")
    letter = _insert_payload(moved.c.id, moved.c.generation)
    called = _called() if notify else null()
    return select(moved.c.id, called).add_cte(letter.cte("letter"))


def _insert_payload(id: ColumnElement[str], generation: ColumnElement[int]) -> Insert:
    message = _message()
    return insert(payload).from_select(
        ["job", "generation", *message], select(id, generation, *message.values()), include_defaults=False
    )


def has_message() -> Select[Any]:
    """Whether this very message is one of a job's up to a generation. No other call has the same one: its headers say when it was made."""
    return select(payload.c.generation).where(
        payload.c.job == given("id"),
        payload.c.generation <= given("generation", Integer),
        payload.c.body == given("body", LargeBinary),
        payload.c.headers == given("headers"),
    )


def has_store(dialect: str) -> Select[Any]:
    """Whether this database has a store's tables at all; asks the catalogue, so that no transaction is spoilt."""
    if dialect == "postgresql":
        return select(func.to_regclass(store.name).is_not(None))
    if dialect == "sqlite":
        return _counted("sqlite_master", literal_column("name") == store.name)
    here = literal_column("table_schema") == func.database()
    return _counted("information_schema.tables", here, literal_column("table_name") == store.name)


def _counted(catalogue: str, *conditions: ColumnElement[bool]) -> Select[Any]:
    return select(func.count()).select_from(text(catalogue)).where(*conditions)


def identity() -> Select[Any]:
    """Which store this database is."""
    return select(store.c.id)
