"""From what scripts answer (bytes, integers) to the values of :mod:`celery_guard.job`."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from celery_guard.job.instant import Instant, instant_to_datetime
from celery_guard.job.letter import Edit
from celery_guard.job.progress import progress_from
from celery_guard.job.row import Attempt, Job, Outgoing, StoredFailure, StoredPayload, StoredResult
from celery_guard.job.state import ENDED, Kind, Reason, State
from celery_guard.job.tally import BOUNDS, Count, Counted, Standing
from celery_guard.job.verdict import (
    Accepted,
    Claimed,
    Conflict,
    Duplicate,
    Enqueued,
    Granted,
    Leased,
    Missing,
    NotDue,
    Settled,
)
from celery_guard.store.protocol import Backlog, Heartbeat, Quarantined, Replayed

__all__ = [
    "attempt", "backlog", "claimed", "counted", "enqueued", "failures", "heartbeat", "instant_at", "job", "outcome", "outgoing", "payload",
    "quarantined", "replayed", "row_in", "row_of", "standing", "text",
]  # fmt: skip

_Row = Mapping[str, str]

_COUNTS = (
    "fence",
    "generation",
    "attempts",
    "crashes",
    "retries",
    "publications",
    "refusals",
    "replays",
    "interruptions",
)
_TEXTS = (
    "task", "queue", "tenant", "holder", "owner", "parent_id", "root_id", "group_id", "correlation_id", "schedule", "failure_class",
    "cause",
)  # fmt: skip
_INSTANTS = ("due", "deadline", "sent", "started", "finished", "keep_until")


def text(answer: Any) -> str:
    """A text of the server's."""
    found: str = answer.decode()
    return found


def row_of(flat: Sequence[bytes]) -> dict[str, str]:
    """A row: names and values in turn. What it does not have is missing."""
    words = list(map(text, flat))
    return dict(zip(words[::2], words[1::2], strict=True))


def row_in(answer: bytes) -> dict[str, str]:
    """A row that came as JSON."""
    row: dict[str, str] = json.loads(answer)
    return row


def enqueued(id: str, answer: Sequence[bytes]) -> Enqueued:
    """What became of one job that was to be accepted."""
    word, holder = text(answer[0]), text(answer[1])
    if word == "accepted":
        return Accepted(id, holder or None)
    return (Duplicate if word == "duplicate" else Conflict)(id, holder, State(text(answer[2])))


def claimed(id: str, answer: Sequence[Any]) -> Claimed:
    """The verdict of a claim."""
    word = text(answer[0])
    if word == "granted":
        return _granted(id, int(answer[1]), row_in(answer[2]))
    if word == "leased":
        return Leased(id, text(answer[1]))
    if word == "not due":
        return NotDue(id, _reason(text(answer[1])))
    if word == "missing":
        return Missing(id)
    row = row_in(answer[2])
    return Settled(
        id, State(row["state"]), _reason(row.get("reason")), bool(answer[1]), _result(answer[3]), _decided(answer[4]),
        _count(row, "fence"),
    )  # fmt: skip


def _granted(id: str, now: int, row: _Row) -> Granted:
    deadline, created = _instant(row, "deadline"), int(row["created"])
    return Granted(
        id=id,
        fence=_count(row, "fence"),
        owner=row["owner"],
        generation=_count(row, "generation"),
        attempts=_count(row, "attempts"),
        crashes=_count(row, "crashes"),
        retries=_count(row, "retries"),
        cancel=_flag(row, "cancel"),
        remaining=None if deadline is None else _duration(deadline - now),
        deadline=None if deadline is None else Instant(deadline),
        age=_duration(now - created),
        tenant=row.get("tenant"),
        key=row.get("key_hash"),
        correlation_id=row.get("correlation_id"),
        holder=row.get("holder"),
        root_id=row.get("root_id"),
        created=Instant(created),
        interruptions=_count(row, "interruptions"),
    )


def outcome(answer: Sequence[Any]) -> tuple[State, StoredResult | None, StoredFailure | None] | None:
    """How a job ended; None where there is none."""
    if not answer:
        return None
    return State(text(answer[0])), _result(answer[1]), _decided(answer[2])


def _result(answer: Sequence[Any]) -> StoredResult | None:
    body, content_type, content_encoding = answer
    return None if body is None else StoredResult(body, text(content_type), text(content_encoding))


def _decided(answer: Sequence[bytes]) -> StoredFailure | None:
    """The failure that decided how the job ended."""
    found = [one for one in failures(answer) if one.failure_class != "superseded"]
    return found[-1] if found else None


def failures(answer: Sequence[bytes]) -> tuple[StoredFailure, ...]:
    """The failures of a job, oldest first."""
    found = sorted(
        map(json.loads, answer), key=lambda one: (int(one["at"]), int(one["fence"]), int(one["attempt"]), one["number"])
    )
    return tuple(map(_failure, found))


def _failure(one: Mapping[str, Any]) -> StoredFailure:
    words = {name: one[name] for name in ("failure_class", "type_name", "message", "traceback", "cause", "worker")}
    return StoredFailure(
        **words,
        truncated=bool(one["truncated"]),
        fence=int(one["fence"]),
        attempt=int(one["attempt"]),
        at=_at(one["at"]),
    )


def outgoing(answer: Sequence[Any], now: int) -> Outgoing:
    """A row that a relay has taken."""
    id, found, *letter = answer
    row = row_in(found)
    state, deadline = State(row["state"]), _instant(row, "deadline")
    return Outgoing(
        id=text(id),
        task=row["task"],
        queue=row["queue"],
        kind=Kind(row["kind"]),
        state=state,
        reason=_reason(row.get("reason")),
        generation=_count(row, "generation"),
        retries=_count(row, "retries"),
        publications=_count(row, "publications"),
        refusals=_count(row, "refusals"),
        payload=payload(letter),
        tenant=row.get("tenant"),
        expired=state not in ENDED and deadline is not None and deadline <= now,
        holder=row.get("holder"),
        fence=_count(row, "fence"),
    )


def payload(answer: Sequence[Any]) -> StoredPayload | None:
    """A message; None where there is none."""
    return None if answer[0] is None else _payload(answer)


def _payload(answer: Sequence[bytes]) -> StoredPayload:
    body, headers, delivery = answer
    return StoredPayload(body, text(headers), text(delivery))


def attempt(answer: Sequence[Any], now: int) -> Attempt:
    """A running or sent row that the sweep has to decide about."""
    id, found, overtaken = answer
    row = row_in(found)
    state, deadline = State(row["state"]), _instant(row, "deadline")
    since = int(row["started" if state is State.RUNNING else "sent"])
    return Attempt(
        id=text(id),
        task=row["task"],
        queue=row["queue"],
        state=state,
        reason=_reason(row.get("reason")),
        fence=_count(row, "fence"),
        owner=row.get("owner", ""),
        attempts=_count(row, "attempts"),
        crashes=_count(row, "crashes"),
        retries=_count(row, "retries"),
        publications=_count(row, "publications"),
        cancel=_flag(row, "cancel"),
        age=_duration(now - since),
        total=_duration(now - int(row["created"])),
        leased=_duration(int(row["due"]) - since),
        remaining=None if deadline is None else _duration(deadline - now),
        overtaken=bool(overtaken),
    )


def job(id: str, row: _Row, found: tuple[StoredFailure, ...] = ()) -> Job:
    """A job as people read it."""
    texts: dict[str, Any] = {name: row.get(name) for name in _TEXTS}
    counts: dict[str, Any] = {name: _count(row, name) for name in _COUNTS}
    instants: dict[str, Any] = {name: _at(row.get(name)) for name in _INSTANTS}
    return Job(
        id=id,
        kind=Kind(row["kind"]),
        state=State(row["state"]),
        reason=_reason(row.get("reason")),
        created=instant_to_datetime(Instant(int(row["created"]))),
        priority=None if "priority" not in row else int(row["priority"]),
        key=row.get("key_hash"),
        cancel=_flag(row, "cancel"),
        told=_flag(row, "told"),
        progress=progress_from(row.get("progress"), instants["started"]),
        failures=found,
        **texts,
        **counts,
        **instants,
    )


def replayed(id: str, answer: Sequence[bytes], edit: Edit | None = None) -> Replayed:
    """What became of one job that was to be replayed."""
    word, *about = map(text, answer)
    if word == "replayed":
        return Replayed(id, "replayed")
    if word == "missing":
        return Replayed(id, "skipped", "there is no such job")
    if word == "edited" and edit is not None:
        return Replayed(id, "skipped", edit.overtaken_by(int(about[0])))
    if word == "held":
        return Replayed(id, "skipped", f"its key is held by job {about[0]} ({about[1]})")
    return Replayed(id, "skipped", f"it is {about[0]}, not dead")


def quarantined(answer: Sequence[Any]) -> Quarantined:
    """A message in quarantine, with its body if that was asked for."""
    number, (received, *words, size, headers, delivery, state, handled, why) = answer[0], answer[1][:11]
    queue, content_type, content_encoding, reason = map(text, words)
    return Quarantined(
        int(number),
        _instant_at(received),
        queue,
        content_type,
        content_encoding,
        reason,
        int(size),
        text(headers),
        answer[1][11] if len(answer[1]) > 11 else b"",
        None if delivery is None else text(delivery),
        "kept" if state is None else text(state),
        _at(handled),
        "" if why is None else text(why),
    )


def heartbeat(answer: Sequence[Any], now: int) -> Heartbeat:
    """A slot, or a process."""
    name, (token, beat, until, detail) = answer
    return Heartbeat(text(name), text(token), _instant_at(beat), _instant_at(until), int(until) > now, text(detail))


def backlog(answer: Sequence[Any]) -> list[Backlog]:
    """What waits and runs, by queue: counts, then instants, 0 where there is none."""
    found = []
    for queue, pending, sent, running, lapsed, *instants in answer:
        times = [_instant_at(value) if int(value) else None for value in instants]
        found.append(Backlog(text(queue), pending, sent, running, lapsed, *times))
    return sorted(found, key=lambda one: one.queue)


def instant_at(value: Any) -> datetime:
    """An instant as an aware datetime."""
    return _instant_at(value)


def _count(row: _Row, name: str) -> int:
    return int(row.get(name, 0))


def _flag(row: _Row, name: str) -> bool:
    return row.get(name) == "1"


def _instant(row: _Row, name: str) -> int | None:
    return int(row[name]) if name in row else None


def _instant_at(value: Any) -> datetime:
    return instant_to_datetime(Instant(int(value)))


def _at(value: Any) -> datetime | None:
    return None if value is None else _instant_at(value)


def _duration(microseconds: int) -> timedelta:
    return timedelta(microseconds=microseconds)


def _reason(word: str | None) -> Reason | None:
    return Reason(word) if word else None


#: What a histogram's scripts write: how many were within this bound and no narrower one. Releases before wrote ``*_within`` themselves.
_IN = {"run_in": Count.RUN_WITHIN, "cancel_in": Count.CANCEL_WITHIN}


def counted(flat: Sequence[bytes]) -> list[Counted]:
    """Every total; a series and its value in turn."""
    totals: dict[tuple[Count, str, str, str, str], int] = {}
    for series, total in zip(flat[::2], flat[1::2], strict=True):
        word, task, state, reason, failure_class = json.loads(text(series))
        what = _IN.get(word) or Count.known(word)
        if what is None:
            continue
        classes = map(str, range(int(failure_class), len(BOUNDS))) if word in _IN else [failure_class]
        for each in classes:
            label = what, task, state, reason, each
            totals[label] = totals.get(label, 0) + int(total)
    return [
        Counted(what, task, total, state, reason, each) for (what, task, state, reason, each), total in totals.items()
    ]


def standing(state: State, pages: Iterable[Any]) -> list[Standing]:
    """What is in a state, by queue and task; a group may come in several pages."""
    found: dict[tuple[str, str], tuple[int, int, int]] = {}
    for queue, task, jobs, oldest, leased in pages:
        group = text(queue), text(task)
        had = found.get(group, (0, 0, 0))
        found[group] = had[0] + jobs, max(had[1], int(oldest)), had[2] + leased
    return [
        Standing(state.value, queue, task, jobs, timedelta(microseconds=oldest), leased)
        for (queue, task), (jobs, oldest, leased) in found.items()
    ]
