"""Statements of people: look, cancel, replay; and of processes that say they are alive."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sqlalchemy import and_, case, delete, func, insert, literal_column, null, or_, select, update
from sqlalchemy.sql.dml import Delete, Insert, Update
from sqlalchemy.sql.selectable import Select

from celery_guard.job.instant import microseconds
from celery_guard.job.row import StoredPayload
from celery_guard.job.state import Kind, Reason, State
from celery_guard.store.bounds import KEEP_CANCELLED
from celery_guard.store.sql.clock import now
from celery_guard.store.sql.tables import heartbeat, job, metadata, payload, quarantine, result

from . import fixed, one_of

__all__ = [
    "accepted",
    "backlog",
    "cancel_waiting",
    "clock",
    "drop_payload",
    "drop_result",
    "emptied",
    "heartbeats",
    "hold",
    "holds_key",
    "job_row",
    "keep_payload",
    "keep_slot",
    "move_message",
    "payload_of",
    "quarantined",
    "quarantined_message",
    "release_slot",
    "replay",
    "slot_taken",
    "stop_running",
    "take_in",
    "taken_in",
]

# -- for tests of users ------------------------------------------------------------------------------------------------


def accepted() -> Select[Any]:
    """Every job with its message, the oldest first."""
    letter = and_(payload.c.job == job.c.id, payload.c.generation == job.c.generation)
    return (
        select(
            job.c.id, job.c.task, job.c.queue, job.c.tenant, job.c.state, payload.c.body, payload.c.headers, payload.c.delivery
        )
        .join(payload, letter)
        .order_by(job.c.created, job.c.id)
    )  # fmt: skip


def emptied(name: str) -> Delete:
    """All rows of one of the store's tables."""
    return delete(metadata.tables[name])


# -- look -------------------------------------------------------------------------------------------------------------


def job_row(id: str, locked: bool = False) -> Select[Any]:
    """One job."""
    found = select(job).where(job.c.id == id)
    return found.with_for_update() if locked else found


def payload_of(id: str, generation: int | None) -> Select[Any]:
    """The message of a job; the latest by default."""
    found = select(payload.c.body, payload.c.headers, payload.c.delivery).where(payload.c.job == id)
    if generation is None:
        return found.order_by(payload.c.generation.desc()).limit(1)
    return found.where(payload.c.generation == generation)


def backlog(state: State, limit: int) -> Select[Any]:
    """By queue: how many of the jobs of a state that are due first, how many are due, and the oldest times."""
    first = select(job.c.queue, job.c.due, job.c.sent).where(job.c.state == fixed(state), job.c.due.is_not(None))
    if state is State.PENDING:
        first = first.where(job.c.due <= now())
    row = first.order_by(job.c.due).limit(limit).subquery("first")
    is_due = func.coalesce(func.sum(case((row.c.due <= now(), 1), else_=0)), 0)
    return select(row.c.queue, func.count(), is_due, func.min(row.c.due), func.min(row.c.sent)).group_by(row.c.queue)


def clock() -> Select[Any]:
    """Now, by the database's clock."""
    return select(now())


# -- cancel -----------------------------------------------------------------------------------------------------------


def cancel_waiting(id: str) -> Update:
    """End a job that waits. The relay has it told: it is due at once. A carried message is nobody's concern."""
    carried = job.c.kind == fixed(Kind.CARRIED)
    return (
        update(job)
        .where(job.c.id == id, one_of((State.PENDING, State.SENT)))
        .values(
            state=fixed(State.CANCELLED),
            reason=null(),
            cancel=literal_column("1"),
            asked=now(),
            held_key=null(),
            relay=null(),
            told=case((carried, 1), else_=0),
            due=case((carried, null()), else_=now()),
            finished=now(),
            keep_until=now() + microseconds(KEEP_CANCELLED),
            failure_class=null(),
            cause=null(),
        )
    )


def stop_running(id: str) -> Update:
    """Ask a job that runs, or whose outcome is unknown, to stop."""
    return (
        update(job)
        .where(job.c.id == id, one_of((State.RUNNING, State.UNKNOWN)))
        .values(cancel=literal_column("1"), asked=func.coalesce(job.c.asked, now()))
    )


# -- replay -----------------------------------------------------------------------------------------------------------


def holds_key(key: str) -> Select[Any]:
    """Who holds a key."""
    return select(job.c.id, job.c.state).where(job.c.held_key == key)


def replay(id: str, held_key: str | None, holder: str | None, edited: Mapping[str, Any]) -> Update:
    """A dead job waits again, its counts new. A deadline that is over would end it at once, and is lifted.

    ``edited`` are columns of its call, where it goes on with another.
    """
    values: dict[str, Any] = {
        "state": fixed(State.PENDING),
        "reason": fixed(Reason.REPLAY),
        "held_key": held_key,
        "holder": holder,
        "deadline": case((job.c.deadline <= now(), null()), else_=job.c.deadline),
        "counted": job.c.fence + 1,
        # who still speaks of the end that is undone is not heard
        "fence": job.c.fence + 1,
        "due": now(),
        "replays": job.c.replays + 1,
        **edited,
        **dict.fromkeys(("finished", "keep_until", "relay", "asked", "failure_class", "cause", "progress"), null()),
        **dict.fromkeys(
            ("attempts", "crashes", "retries", "publications", "refusals", "interruptions"), literal_column("0")
        ),
        **dict.fromkeys(("cancel", "told", "followers"), literal_column("0")),
    }
    # In this order: MySQL reads what it has already assigned.
    return (
        update(job)
        .where(job.c.id == id, job.c.state == fixed(State.DEAD))
        .ordered_values(*((job.c[name], value) for name, value in values.items()))
    )


def drop_payload(id: str, generation: int) -> Delete:
    """A message that belongs to no row: its writer's connection was in autocommit, and it died before the row."""
    return delete(payload).where(payload.c.job == id, payload.c.generation == generation)


def keep_payload(id: str, generation: int, letter: StoredPayload) -> Insert:
    """The message of a job's next generation."""
    words = {"body": letter.body, "headers": letter.headers, "delivery": letter.delivery}
    return insert(payload).values(job=id, generation=generation, **words)


def drop_result(id: str) -> Delete:
    """A job that runs again has no result."""
    return delete(result).where(result.c.job == id)


# -- messages nobody could open ---------------------------------------------------------------------------------------


def taken_in(token: str) -> Select[Any]:
    """The number of a message in quarantine, by the token of the write that brought it there."""
    return select(quarantine.c.number).where(quarantine.c.token == token)


def take_in(token: str, queue: str, body: bytes, **words: str | None) -> Insert:
    """Keep a message as it was."""
    return insert(quarantine).values(token=token, received=now(), queue=queue, body=body, size=len(body), **words)


def quarantined(limit: int, handled: bool, before: int | None) -> Select[Any]:
    """Messages in quarantine, newest first, without their bodies."""
    found = (
        select(*(column for column in quarantine.c if column.name not in ("body", "token")))
        .order_by(quarantine.c.number.desc())
        .limit(limit)
    )
    if not handled:
        found = found.where(quarantine.c.handled.is_(None))
    return found if before is None else found.where(quarantine.c.number < before)


def move_message(number: int, was: str, state: str, why: str, handled: bool) -> Update:
    """Note what a person does about a message in quarantine."""
    return (
        update(quarantine)
        .where(quarantine.c.number == number, quarantine.c.state == was)
        .values(state=state, why=why, handled=now() if handled else null())
    )


def quarantined_message(number: int) -> Select[Any]:
    """One message in quarantine, with its body."""
    return select(quarantine).where(quarantine.c.number == number)


# -- who is alive -----------------------------------------------------------------------------------------------------


def keep_slot(name: str, token: str, ttl: int, detail: str) -> Update:
    """Take a slot that is free, or keep one's own."""
    return (
        update(heartbeat)
        .where(heartbeat.c.name == name, or_(heartbeat.c.token == token, heartbeat.c.until <= now()))
        .values(token=token, beat=now(), until=now() + ttl, detail=detail)
    )


def slot_taken(name: str) -> Select[Any]:
    """Whether the slot is known at all."""
    return select(heartbeat.c.name).where(heartbeat.c.name == name)


def hold(name: str, token: str, ttl: int, detail: str) -> Insert:
    """Take a slot that nobody had before."""
    return insert(heartbeat).values(name=name, token=token, beat=now(), until=now() + ttl, detail=detail)


def release_slot(name: str, token: str) -> Delete:
    """Give a slot back."""
    return delete(heartbeat).where(heartbeat.c.name == name, heartbeat.c.token == token)


def heartbeats() -> Select[Any]:
    """Who has said that it is alive."""
    return select(heartbeat, (heartbeat.c.until > now()).label("live")).order_by(heartbeat.c.name)
