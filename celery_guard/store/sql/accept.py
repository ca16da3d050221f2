"""Accepting jobs: the one algorithm, on a connection of the store's own or of the caller's.

In a transaction that the store did not begin, nothing here repeats, sets a savepoint or swallows an error. Jobs with a key are
taken in the order of their keys, so that two callers who want the same ones do not wait for each other in a circle. A job
without a key never touches the index of keys.
"""

from __future__ import annotations

import json
from base64 import b64encode
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from celery_guard.errors import KeyBusy
from celery_guard.job.instant import microseconds
from celery_guard.job.row import NewJob
from celery_guard.job.state import Reason, State
from celery_guard.job.tally import Count
from celery_guard.job.verdict import Accepted, Busy, Conflict, Duplicate, Enqueued
from celery_guard.store.calls import BATCH, BATCH_BYTES

from .count import write
from .statement import Link, Row
from .statements import accept as statements

__all__ = ["accept", "refuse_busy"]


def accept(
    link: Link,
    jobs: Sequence[NewJob],
    *,
    notify: bool,
    again: bool = False,
    without_key: bool = False,
    look_first: bool = False,
) -> list[Enqueued]:
    """Write the rows; answers in the order of ``jobs``.

    Args:
        notify: wake relays, where the database can.
        again: a row that is there may be what an earlier try wrote.
        without_key: they know their keys and do not hold them, for jobs that are refused.
        look_first: look who holds a key before it is tried, where trying costs an error that a caller's connection would show.
    """
    order = sorted(range(len(jobs)), key=lambda place: jobs[place].key or "")
    answers: dict[int, Enqueued] = {}
    many = len(jobs) > 1 and not without_key and all(job.in_broker is None for job in jobs)
    if link.traits.one_statement and many:
        for batch in _batches(jobs, order):
            answers |= _accept_many(link, jobs, batch, notify)
    for place in order:
        if place in answers:
            continue
        acceptance = _Acceptance(link, jobs[place], notify, again, without_key)
        answers[place] = acceptance.answer(look_first)
    _count(link, jobs, answers)
    return [answers[place] for place in range(len(jobs))]


def refuse_busy(answers: Sequence[Enqueued]) -> None:
    """On a repetition wait for a key that is being taken, perhaps by an earlier try: the server may not know yet that its connection is gone."""
    if any(isinstance(answer, Busy) for answer in answers):
        raise KeyBusy("A key of these jobs is being taken by another open transaction.")


def _count(link: Link, jobs: Sequence[NewJob], answers: Mapping[int, Enqueued]) -> None:
    """Count what leaves no row, in the transaction that it is in."""
    if all(type(answer) is Accepted for answer in answers.values()):
        return
    what = {Duplicate: Count.DUPLICATE, Conflict: Count.CONFLICT}
    found = Counter((what[type(answer)], jobs[place].task) for place, answer in answers.items() if type(answer) in what)
    for (word, task), total in sorted(found.items()):
        write(link, word, task, total)


def _batches(jobs: Sequence[NewJob], order: Sequence[int]) -> Iterator[list[int]]:
    """Places of jobs that are written by one statement: each id once, neither too many jobs nor too many bytes."""
    batch: list[int] = []
    ids: set[str] = set()
    size = 0
    for place in order:
        job = jobs[place]
        if job.id in ids:
            continue
        if batch and (len(batch) == BATCH or size + len(job.payload.body) > BATCH_BYTES):
            yield batch
            batch, size = [], 0
        batch.append(place)
        ids.add(job.id)
        size += len(job.payload.body)
    yield batch


def _accept_many(link: Link, jobs: Sequence[NewJob], places: Sequence[int], notify: bool) -> dict[int, Enqueued]:
    """Accept those whose ids and keys are free, in one statement; those that met another job are left for a closer look."""
    given = [_plain(jobs[place], number) for number, place in enumerate(places)]
    scheduled = any(jobs[place].schedule is not None for place in places)
    rows = link.rows(statements.accept_many, {"jobs_": json.dumps(given)}, notify, scheduled)
    answers: dict[int, Enqueued] = {}
    for number, accepted, held, free, *_ in rows:
        id = jobs[places[number]].id
        if accepted is not None:
            answers[places[number]] = Accepted(id)
        elif not (held or free):
            answers[places[number]] = Busy(id)
    return answers


def _plain(new: NewJob, place: int) -> dict[str, Any]:
    """A new job as JSON has it."""
    values = {name.rstrip("_"): value for name, value in _values(new).items()}
    values["held_key"], values["place"] = new.key, place
    values["body"] = b64encode(new.payload.body).decode("ascii")
    return values


@dataclass(frozen=True, slots=True)
class _Found:
    """A row that has the id or holds the key."""

    id: str
    fingerprint: str | None
    state: State
    reason: str | None = None
    holder: str | None = None
    generation: int = 0


class _Acceptance:
    """One job on its way in."""

    def __init__(self, link: Link, new: NewJob, notify: bool, again: bool, without_key: bool) -> None:
        self._link = link
        self._new = new
        self._notify = notify
        self._again = again
        self._held_key = None if without_key else new.key
        self._shape = (new.schedule is not None, new.in_broker is not None)

    def answer(self, look_first: bool) -> Enqueued:
        new = self._new
        values = {**_values(new), "held_key_": self._held_key}
        if self._again and (found := self._find(values, by_key=False)):
            # whoever holds the key by now: an earlier try may have written the row
            return self._meet(found, values)
        if not self._link.traits.one_statement:
            if look_first and self._held_key is not None and (found := self._find(values, by_key=True)):
                return self._meet(found, values)
            return Accepted(new.id) if self._insert_in_steps(values) else self._collided(values)
        id, holder, fingerprint, state, free = self._insert_at_once(values)
        if id is not None:
            return Accepted(new.id)
        if holder is not None:
            return self._meet(_Found(holder, fingerprint, State(state)), values)
        return self._collided(values) if free else Busy(new.id)

    def _insert_at_once(self, values: Mapping[str, Any]) -> Row:
        keyed = values["held_key_"] is not None
        rows = self._link.rows(statements.accept, values, keyed, self._notify, *self._shape)
        return rows[0][:5] if rows else (None, None, None, None, True)

    def _insert_in_steps(self, values: Mapping[str, Any]) -> bool:
        values = {**values, "generation_": 0}
        return self._with_message(values, lambda: self._link.inserted(statements.accept_job, values, *self._shape))

    def _with_message(self, values: Mapping[str, Any], write: Callable[[], bool]) -> bool:
        """Have the row written behind its message, so that nobody finds it without, on a connection in autocommit either."""
        link = self._link
        new_message = link.inserted(statements.keep_payload, values)
        written = write()
        if written and not new_message:
            # of somebody who died before the row, or who comes second and may be taking it back just now
            if not link.changed(statements.replace_payload, values):
                link.inserted(statements.keep_payload, values)
        elif new_message and not written:
            link.changed(statements.withdraw_payload, values)
        return written

    def _insert(self, values: Mapping[str, Any]) -> bool:
        if self._link.traits.one_statement:
            return self._insert_at_once(values)[0] is not None
        return self._insert_in_steps(values)

    def _find(self, values: Mapping[str, Any], *, by_key: bool, locked: bool = False) -> _Found | None:
        for id, fingerprint, state, reason, holder, generation in self._link.rows(
            statements.find, values, by_key, locked
        ):
            return _Found(id, fingerprint, State(state), reason, holder, generation)
        return None

    def _collided(self, values: Mapping[str, Any]) -> Enqueued:
        """The insert met a row that it could not see before."""
        locked = not self._link.traits.one_statement
        found = self._find(values, by_key=False, locked=locked)
        if found is None and values["held_key_"] is not None:
            found = self._find(values, by_key=True, locked=locked)
        return Busy(self._new.id) if found is None else self._meet(found, values)

    def _meet(self, found: _Found, values: Mapping[str, Any]) -> Enqueued:
        """What to do about a row that has our id, or holds our key."""
        new = self._new
        seen = {**values, "generation_": found.generation}
        if self._again and found.id == new.id and self._link.rows(statements.has_message, seen):
            # an earlier try, whatever became of the job since; one that was brought back keeps the fingerprint of the call before
            return Accepted(new.id, found.holder)
        if found.id == new.id and found.state is State.PENDING and found.reason == Reason.HANDED_OVER:
            return self._carry_on(found, values)
        if found.fingerprint != new.fingerprint:
            return Conflict(new.id, found.id, found.state)
        if found.id == new.id:
            return Accepted(new.id, found.holder) if self._again else Duplicate(new.id, new.id, found.state)
        if not new.in_canvas:
            return Duplicate(new.id, found.id, found.state)
        # Due at once: the relay looks at the holder, and from then on the holder's end brings the follower back.
        follower = {**values, "held_key_": None, "holder_": found.id, "reason_": Reason.HELD_KEY.value}
        self._shape = (new.schedule is not None, False)
        return Accepted(new.id, found.id) if self._insert(follower) else self._collided(follower)

    def _carry_on(self, found: _Found, values: Mapping[str, Any]) -> Enqueued:
        """The job handed itself over to others, the last of whom brings its id back: it goes on with this message."""
        values = {**values, "generation_": found.generation + 1}
        if self._link.traits.one_statement:
            carried_on = bool(self._link.rows(statements.carry_on_at_once, values, self._notify))
        else:
            carried_on = self._with_message(values, lambda: bool(self._link.changed(statements.carry_on, values)))
        return Accepted(self._new.id) if carried_on else Duplicate(self._new.id, self._new.id, found.state)


def _values(new: NewJob) -> dict[str, Any]:
    return {
        "id_": new.id,
        "task_": new.task,
        "queue_": new.queue,
        "priority_": new.priority,
        "tenant_": new.tenant,
        "kind_": new.kind.value,
        "key_hash_": new.key,
        "fingerprint_": new.fingerprint,
        "holder_": None,
        "reason_": Reason.NEW.value,
        "delay_": microseconds(new.delay),
        "in_broker_": None if new.in_broker is None else microseconds(new.in_broker),
        "deadline_": new.deadline,
        "deadline_in_": None if new.deadline_in is None else microseconds(new.deadline_in),
        "parent_id_": new.parent_id,
        "root_id_": new.root_id,
        "group_id_": new.group_id,
        "correlation_id_": new.correlation_id,
        "schedule_": new.schedule,
        "body_": new.payload.body,
        "headers_": new.payload.headers,
        "delivery_": new.payload.delivery,
    }
