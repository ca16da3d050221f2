"""What people ask of the store: see a job, cancel it, replay it; and what nobody could open."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import literal_column
from sqlalchemy.engine import Connection, RowMapping

from celery_guard.job.instant import Instant, instant_to_datetime, microseconds
from celery_guard.job.letter import Edit
from celery_guard.job.row import Job, StoredPayload
from celery_guard.job.state import State
from celery_guard.store.protocol import HANDLED, Backlog, Cancelled, Heartbeat, Quarantined, Replayed

from . import rows
from .count import fold_rows, replayed
from .statements import listing
from .statements import people as statements
from .statements.accept import try_key
from .statements.run import failed
from .tables import job

__all__ = [
    "backlog",
    "cancel",
    "clock",
    "counts",
    "heartbeats",
    "job_of",
    "jobs",
    "message",
    "move_message",
    "payload_of",
    "quarantine",
    "quarantined",
    "replay",
]


def job_of(connection: Connection, id: str) -> Job | None:
    """One job with its failures."""
    row = connection.execute(statements.job_row(id)).mappings().one_or_none()
    if row is None:
        return None
    failures = connection.execute(failed(False), {"id_": id})
    return rows.job(row, tuple(map(rows.stored_failure, failures)))


def jobs(
    connection: Connection,
    states: Sequence[State],
    wanted: Mapping[str, str | None],
    ages: Mapping[str, tuple[timedelta | None, timedelta | None]],
    limit: int,
    after: str | None,
) -> list[Job]:
    """Jobs, newest first."""
    # SQLite's clock has milliseconds, and its row numbers the order of arrival.
    tie = literal_column("guard_job.rowid") if connection.dialect.name == "sqlite" else job.c.id
    filters = [(name, value) for name, value in wanted.items() if value is not None]
    spans = [
        (name, None if least is None else microseconds(least), None if most is None else microseconds(most))
        for name, (least, most) in ages.items()
    ]
    found = connection.execute(listing.jobs(states, filters, spans, limit, after, tie, _apart(connection)))
    return [rows.job(row) for row in found.mappings()]


def _apart(connection: Connection) -> bool:
    """Whether what has ended and is counted has indexes of its own."""
    return connection.dialect.name == "postgresql"


def payload_of(connection: Connection, id: str, generation: int | None) -> StoredPayload | None:
    """The stored message of a job."""
    for body, headers, delivery in connection.execute(statements.payload_of(id, generation)):
        return StoredPayload(bytes(body), headers, delivery)
    return None


def counts(connection: Connection, tenant: str | None, states: Collection[State]) -> dict[State, int]:
    """How many jobs are in each state that has any."""
    found = connection.execute(listing.counts(tenant, states, _apart(connection)))
    return {State(state): count for state, count in found}


def backlog(connection: Connection, limit: int) -> list[Backlog]:
    """What waits and runs, by queue."""
    found: dict[str, dict[str, Any]] = {}
    for state in (State.PENDING, State.SENT, State.RUNNING):
        for queue, count, due, oldest_due, oldest_sent in connection.execute(statements.backlog(state, limit)):
            known = found.setdefault(queue, {})
            known[state.value] = count
            if state is State.PENDING:
                known["oldest_due"] = rows.instant(oldest_due)
            elif state is State.SENT:
                known["oldest_sent"] = rows.instant(oldest_sent)
            elif due:
                known.update(lapsed=int(due), oldest_lapse=rows.instant(oldest_due))
    for queue, known in found.items():
        known["last_start"] = rows.instant(connection.execute(listing.last_start(queue, _apart(connection))).scalar())
    return [Backlog(queue, **known) for queue, known in sorted(found.items())]


def clock(connection: Connection) -> datetime:
    """Now, by the database's clock."""
    return instant_to_datetime(Instant(connection.execute(statements.clock()).scalar_one()))


def cancel(connection: Connection, id: str, again: bool) -> tuple[Cancelled, bool]:
    """Cancel a job; and whether others wait for its outcome."""
    before = connection.execute(statements.job_row(id, locked=True)).mappings().one_or_none()
    if before is None:
        return Cancelled(id, "too late", None), False
    state = State(before["state"])
    if connection.execute(statements.cancel_waiting(id)).rowcount:
        return Cancelled(id, "cancelled", State.CANCELLED), bool(before["followers"])
    if connection.execute(statements.stop_running(id)).rowcount:
        return Cancelled(id, "asked", state), False
    if again and state is State.CANCELLED and before["cancel"]:
        return Cancelled(id, "cancelled", state), True
    return Cancelled(id, "too late", state), False


def replay(connection: Connection, id: str, seen: list[int], *, lock_keys: bool, edit: Edit | None = None) -> Replayed:
    """Send a dead job again, if its key is free or it only followed the job that holds it; with the message of ``edit`` where there is one.

    ``seen`` keeps, from the first try of a call to the next, how often it had been sent again: an earlier try may have done it.
    """
    row = connection.execute(statements.job_row(id, locked=True)).mappings().one_or_none()
    if row is None:
        return Replayed(id, "skipped", "there is no such job")
    seen.append(row["replays"])
    if row["replays"] > seen[0] and (edit is None or payload_of(connection, id, edit.generation + 1) == edit.payload):
        return Replayed(id, "replayed")
    if row["state"] != State.DEAD:
        return Replayed(id, "skipped", f"it is {row['state']}, not dead")
    if edit is not None and row["generation"] != edit.generation:
        return Replayed(id, "skipped", edit.overtaken_by(row["generation"]))
    key, holder = row["key_hash"], None
    if key is not None:
        if lock_keys and not connection.execute(try_key(), {"held_key_": key}).scalar():
            return Replayed(id, "skipped", "an open transaction is taking its key")
        held = connection.execute(statements.holds_key(key)).one_or_none()
        if held is not None and (edit is not None or held.id != row["holder"]):
            return Replayed(id, "skipped", f"its key is held by job {held.id} ({held.state})")
        holder = None if held is None else held.id
    fold_rows(connection, [id])
    # in the way of whatever message the job goes on with, now or after a retry
    connection.execute(statements.drop_payload(id, row["generation"] + 1))
    connection.execute(statements.replay(id, key if holder is None else None, holder, _edited(connection, edit)))
    connection.execute(statements.drop_result(id))
    replayed(connection, id)
    return Replayed(id, "replayed")


def _edited(connection: Connection, edit: Edit | None) -> Mapping[str, Any]:
    """Write the message that a job goes on with; what its row says of it."""
    if edit is None:
        return {}
    generation = edit.generation + 1
    connection.execute(statements.keep_payload(edit.id, generation, edit.payload))
    return {"generation": generation, "fingerprint": edit.fingerprint}


def quarantine(connection: Connection, token: str, queue: str, body: bytes, words: Mapping[str, str | None]) -> int:
    """Keep a message as the raw bytes it was; its number."""
    queue = rows.storable(queue)[:255]
    words = {name: None if word is None else rows.storable(word) for name, word in words.items()}
    number = connection.execute(statements.taken_in(token)).scalar()
    if number is None:
        connection.execute(statements.take_in(token, queue, body, **words))
        number = connection.execute(statements.taken_in(token)).scalar_one()
    return int(number)


def quarantined(connection: Connection, limit: int, handled: bool, before: int | None) -> list[Quarantined]:
    """Messages in quarantine, newest first, without their bodies."""
    found = connection.execute(statements.quarantined(limit, handled, before)).mappings()
    return [_quarantined(row) for row in found]


def message(connection: Connection, number: int) -> Quarantined | None:
    """One message in quarantine, with its body."""
    row = connection.execute(statements.quarantined_message(number)).mappings().one_or_none()
    return None if row is None else _quarantined(row, bytes(row["body"]))


def move_message(connection: Connection, number: int, was: str, state: str, why: str, again: bool) -> bool:
    """Note what a person does about a message; ``again``: an earlier try may have done it."""
    handled = state in HANDLED
    if connection.execute(statements.move_message(number, was, state, rows.storable(why), handled)).rowcount:
        return True
    found = message(connection, number) if again else None
    return found is not None and (found.state, found.why) == (state, rows.storable(why))


def _quarantined(row: RowMapping, body: bytes = b"") -> Quarantined:
    received = rows.instant(row["received"])
    assert received is not None
    words = ("queue", "content_type", "content_encoding", "reason", "size", "headers", "delivery", "state")
    return Quarantined(
        id=row["number"],
        received=received,
        body=body,
        handled=rows.instant(row["handled"]),
        why=row["why"] or "",
        **{word: row[word] for word in words},
    )


def heartbeats(connection: Connection) -> list[Heartbeat]:
    """Every slot and process that has said it is alive and was not forgotten since."""
    found = connection.execute(statements.heartbeats()).mappings()
    return [_heartbeat(row) for row in found]


def _heartbeat(row: RowMapping) -> Heartbeat:
    beat, until = rows.instant(row["beat"]), rows.instant(row["until"])
    assert beat is not None
    assert until is not None
    return Heartbeat(row["name"], row["token"], beat, until, bool(row["live"]), row["detail"])
