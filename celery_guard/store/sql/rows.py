"""Between what the database holds (integers, words) and the values of :mod:`celery_guard.job`."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

from sqlalchemy.engine import RowMapping

from celery_guard.job.instant import Instant, instant_to_datetime
from celery_guard.job.progress import progress_from
from celery_guard.job.row import Attempt, Job, Outgoing, StoredFailure, StoredPayload
from celery_guard.job.state import Kind, Reason, State
from celery_guard.job.verdict import Granted

from .statement import Row

__all__ = ["attempt", "duration", "granted", "instant", "job", "outgoing", "reason", "storable", "stored_failure"]


def storable(text: str) -> str:
    """Text that every database takes: what cannot be encoded, and NUL, is written out."""
    return text.encode("utf-8", "backslashreplace").decode("utf-8").replace("\x00", "\\x00")


def duration(microseconds: int) -> timedelta:
    """A duration the database measured."""
    return timedelta(microseconds=microseconds)


def instant(value: int | None) -> datetime | None:
    """An instant as an aware datetime."""
    return None if value is None else instant_to_datetime(Instant(value))


def reason(word: str | None) -> Reason | None:
    """The reason, where there is one."""
    return None if word is None else Reason(word)


def granted(id: str, owner: str, row: Row) -> Granted:
    """The verdict for a row that is this owner's: see ``statements.run.claim_returning``."""
    (
        fence, generation, attempts, crashes, retries, cancel, deadline,
        tenant, key, correlation_id, holder, root_id, created,
        interruptions, now,
    ) = row[:15]  # fmt: skip
    remaining = None if deadline is None else duration(deadline - now)
    # By place: with names it takes a third longer.
    return Granted(
        id, fence, owner, generation, attempts, crashes, retries, bool(cancel), remaining, deadline, duration(now - created),
        tenant, key, correlation_id, holder, root_id, created, interruptions,
    )  # fmt: skip


def stored_failure(row: Row) -> StoredFailure:
    """A failure: see ``statements.run.failed``."""
    failure_class, type_name, message, traceback, cause, worker, truncated, fence, attempt, at = row
    return StoredFailure(
        failure_class=failure_class,
        type_name=type_name,
        message=message,
        traceback=traceback,
        cause=cause,
        worker=worker,
        truncated=bool(truncated),
        fence=fence,
        attempt=attempt,
        at=instant(at),
    )


def outgoing(row: Row) -> Outgoing:
    """A row that a relay has taken, as :func:`.statements.relay.taken` reads it."""
    (id, task, queue, kind, state, why, generation, retries, publications, refusals, tenant, holder, fence, expired,
     body, headers, delivery) = row  # fmt: skip
    return Outgoing(
        id=id,
        task=task,
        queue=queue,
        kind=Kind(kind),
        state=State(state),
        reason=reason(why),
        generation=generation,
        retries=retries,
        publications=publications,
        refusals=refusals,
        payload=None if body is None else StoredPayload(bytes(body), headers, delivery),
        tenant=tenant,
        expired=bool(expired),
        holder=holder,
        fence=fence,
    )


def attempt(row: RowMapping) -> Attempt:
    """A running or sent row that the sweep has to decide about."""
    now, deadline = row["now"], row["deadline"]
    state = State(row["state"])
    since = row["started"] if state is State.RUNNING else row["sent"]
    return Attempt(
        id=row["id"],
        task=row["task"],
        queue=row["queue"],
        state=state,
        reason=reason(row["reason"]),
        fence=row["fence"],
        owner=row["owner"] or "",
        attempts=row["attempts"],
        crashes=row["crashes"],
        retries=row["retries"],
        publications=row["publications"],
        cancel=bool(row["cancel"]),
        age=duration(now - since),
        total=duration(now - row["created"]),
        leased=duration(row["due"] - since),
        remaining=None if deadline is None else duration(deadline - now),
        overtaken=bool(row["overtaken"]),
    )


_AS_IT_IS = (
    "id", "task", "queue", "priority", "tenant", "holder", "fence", "owner", "generation", "attempts", "crashes",
    "retries", "publications", "refusals", "replays", "interruptions", "parent_id", "root_id", "group_id", "correlation_id",
    "schedule", "failure_class", "cause",
)  # fmt: skip
_INSTANTS = ("due", "deadline", "sent", "started", "finished", "keep_until")


def job(row: RowMapping, failures: tuple[StoredFailure, ...] = ()) -> Job:
    """A job as people read it."""
    same: dict[str, Any] = {name: row[name] for name in _AS_IT_IS}
    instants: dict[str, Any] = {name: instant(row[name]) for name in _INSTANTS}
    return Job(
        kind=Kind(row["kind"]),
        state=State(row["state"]),
        reason=reason(row["reason"]),
        created=instant_to_datetime(Instant(row["created"])),
        key=row["key_hash"],
        cancel=bool(row["cancel"]),
        told=bool(row["told"]),
        progress=progress_from(row["progress"], instants["started"]),
        failures=failures,
        **same,
        **instants,
    )
