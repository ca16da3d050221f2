"""A caller's connection that commits each statement by itself: what somebody finds who looks in between, and what a death there leaves.

A connection of Django's outside ``atomic()`` is one, and so is one of an engine with ``isolation_level="AUTOCOMMIT"``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import timedelta
from typing import Any

import pytest
from sqlalchemy import Connection, create_engine, event
from sqlalchemy.pool import NullPool

from celery_guard.job.row import NewJob, Outgoing
from celery_guard.job.state import State
from celery_guard.job.verdict import Accepted, Duplicate
from celery_guard.store import open_store
from celery_guard.store.protocol import Store
from celery_guard.testing.conformance import builders
from celery_guard.testing.conformance.builders import LONG, NONE, digest, ended, new_job, payload, retried
from celery_guard.testing.conformance.moves import claim, found, start, take
from celery_guard.testing.databases import database
from celery_guard.testing.services import MARIADB, POSTGRESQL

Connect = Callable[[], Connection]


class Died(Exception):
    """The caller's process ends here."""


@pytest.fixture(scope="module", params=["sqlite", "mariadb", "postgresql"])
def url(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    if request.param == "sqlite":
        yield f"sqlite:///{tmp_path_factory.mktemp('autocommit') / 'store.db'}"
        return
    with database((MARIADB if request.param == "mariadb" else POSTGRESQL).need()) as url:
        yield url


@pytest.fixture
def store(url: str) -> Iterator[Store]:
    store = open_store(url)
    store.upgrade()
    yield store
    store.close()


@pytest.fixture
def connect(url: str) -> Iterator[Connect]:
    engine = create_engine(url, poolclass=NullPool, isolation_level="AUTOCOMMIT")
    connections: list[Connection] = []

    def connect() -> Connection:
        connections.append(engine.connect())
        return connections[-1]

    yield connect
    for connection in connections:
        connection.close()


def enqueue(store: Store, connection: Connection, job: NewJob) -> Any:
    [answer] = store.door(connection).enqueue([job])
    return answer


def after(number: int | None, connection: Connection, do: Callable[[], object]) -> list[int]:
    """Have something done after one write of the connection, or after each; how many there were."""
    writes: list[int] = []

    def executed(_connection: Any, _cursor: Any, statement: str, *_: Any) -> None:
        if not any(word in statement for word in ("INSERT ", "UPDATE ", "DELETE ")):
            return
        writes.append(len(writes))
        if number is None or writes[-1] == number:
            do()

    event.listen(connection, "after_cursor_execute", executed)
    return writes


def taken(store: Store, job: NewJob, hold: timedelta = LONG) -> list[Outgoing]:
    """The job, where a relay finds it due."""
    return [row for row in take(store, hold=hold) if row.id == job.id]


def handed_over(store: Store, delay: timedelta = LONG) -> NewJob:
    """The call that brings a job back which has handed itself over."""
    job = new_job(fingerprint=digest("a call"))
    assert store.settle(builders.handed_over(start(store, job), delay=delay))
    return new_job(id=job.id, payload=payload(b"second"), fingerprint=digest("another call"))


def test_a_relay_finds_a_job_that_comes_back_with_its_message_or_not_at_all(store: Store, connect: Connect) -> None:
    back, caller, seen = handed_over(store), connect(), []
    after(None, caller, lambda: seen.extend(taken(store, back, NONE)))
    assert enqueue(store, caller, back) == Accepted(back.id)
    seen.extend(taken(store, back))
    assert seen
    assert {(row.id, row.generation, row.payload) for row in seen} == {(back.id, 1, back.payload)}


@pytest.mark.parametrize("number", range(3))
def test_a_job_that_comes_back_can_do_so_again_after_its_caller_has_died(
    store: Store, connect: Connect, number: int
) -> None:
    back, caller = handed_over(store), connect()

    def die() -> None:
        raise Died

    after(number, caller, die)
    try:
        enqueue(store, caller, back)
    except Died:
        assert [row.payload for row in taken(store, back, NONE)] in ([], [back.payload])
        enqueue(store, connect(), back)
    [row] = taken(store, back)
    assert (row.id, row.generation, row.payload) == (back.id, 1, back.payload)


def test_what_a_caller_has_left_who_died_is_in_the_way_of_no_later_message(store: Store, connect: Connect) -> None:
    back, caller = handed_over(store, NONE), connect()

    def die() -> None:
        raise Died

    after(0, caller, die)
    with suppress(Died):
        enqueue(store, caller, back)
    [row] = [row for row in take(store, "relay-1") if row.id == back.id]
    assert store.end("relay-1", ended(row))
    assert [answer.answer for answer in store.replay([back.id])] == ["replayed"]
    changed = payload(b"changed by a retry")
    assert store.settle(retried(claim(store, back.id), payload=changed))
    assert store.payload(back.id) == changed


@pytest.mark.parametrize("number", range(3))
def test_two_who_give_the_same_id_at_once_leave_the_job_with_the_message_of_the_one_that_was_accepted(
    store: Store, connect: Connect, number: int
) -> None:
    one = new_job(payload=payload(b"one"))
    two, caller = new_job(id=one.id, payload=payload(b"two")), connect()
    answers: list[Any] = []
    after(number, caller, lambda: answers.append(enqueue(store, connect(), two)))
    answers.append(enqueue(store, caller, one))
    assert Accepted(one.id) in answers
    assert set(answers) <= {Accepted(one.id), Duplicate(one.id, one.id, State.PENDING)}
    accepted = two if answers[0] == Accepted(one.id) and len(answers) == 2 else one
    assert store.payload(one.id) == accepted.payload
    assert [row.payload for row in taken(store, one)] == [accepted.payload]
    assert found(store, one.id).state is State.PENDING
