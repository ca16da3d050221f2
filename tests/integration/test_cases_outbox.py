"""The outbox, from transactions to bodies: OUT-1 (commit races), OUT-5 (rows committed out of order).

OUT-3 and OUT-6, which are about relays, are in ``test_relay.py``; what each database does with a caller's transaction is in the
conformance suite. Here real relays and workers stand ready while the transaction is still open.
"""

from __future__ import annotations

import socket
from collections.abc import Callable
from contextlib import suppress

import pytest
from sqlalchemy import Engine, text
from sqlalchemy.orm import Session

from celery_guard.testing.servers import private_redis
from celery_guard.testing.services import POSTGRESQL
from celery_guard.testing.wire import wire

from .fleet import Fleet

pytestmark = pytest.mark.integration

APP = "tests.integration.app_outbox"


@pytest.fixture
def fleet(make_fleet: Callable[..., Fleet]) -> Fleet:
    return make_fleet("redis-postgresql", APP)


def place(session: Session, order: int) -> None:
    session.execute(text("INSERT INTO shop_order (id) VALUES (:id)"), {"id": order})


def all_that_was_due_has_run(fleet: Fleet) -> None:
    """A job that is enqueued now and has run: whatever was committed before it had its chance."""
    fleet.settled(fleet.app.note.delay("now").id)


def test_out_1_a_job_starts_after_its_transaction_commits_and_finds_its_row(fleet: Fleet, shop: Engine) -> None:
    look_up = fleet.app.look_up
    fleet.worker()
    with Session(shop) as session:
        place(session, 1)
        first = look_up.using(session).delay(1)
        with session.begin_nested() as undone:
            second = look_up.using(session).delay(2)
            undone.rollback()
        with session.begin_nested(), session.begin_nested():
            third = look_up.using(session).delay(1)
        with session.begin_nested() as undone:
            with session.begin_nested():
                fourth = look_up.using(session).delay(4)
            undone.rollback()
        assert first.id
        all_that_was_due_has_run(fleet)
        assert fleet.marks() == ["note now"]
        session.commit()
    for job in (first, third):
        assert fleet.settled(job.id).attempts == 1
    all_that_was_due_has_run(fleet)
    assert fleet.counted() == {"order 1 found": 2, "note now": 2}
    assert [fleet.store.job(job.id) for job in (second, fourth)] == [None, None]


def test_out_1_a_transaction_that_rolls_back_starts_nothing(fleet: Fleet, shop: Engine) -> None:
    fleet.worker()
    with Session(shop) as session:
        place(session, 1)
        with fleet.app.guard.using(session):
            guarded, carried = fleet.app.look_up.delay(1), fleet.app.plain.delay("no")
        all_that_was_due_has_run(fleet)
        session.rollback()
    all_that_was_due_has_run(fleet)
    assert fleet.counted() == {"note now": 2}
    assert [fleet.store.job(job.id) for job in (guarded, carried)] == [None, None]


def test_out_1_outside_a_transaction_a_job_is_committed_at_once(fleet: Fleet, shop: Engine) -> None:
    """With no transaction at all, and on a connection that commits each statement by itself."""
    fleet.worker()
    with shop.execution_options(isolation_level="AUTOCOMMIT").connect() as connection:
        connection.execute(text("INSERT INTO shop_order (id) VALUES (1)"))
        for job in (fleet.app.look_up.using(connection).delay(1), fleet.app.look_up.delay(1)):
            assert fleet.settled(job.id).state.value == "succeeded"
    assert fleet.marks() == ["order 1 found"] * 2


class Deaf:
    """A broker that takes connections and never answers; it counts them."""

    def __init__(self, port: int) -> None:
        self._door = socket.create_server(("127.0.0.1", port))
        self._door.settimeout(0)

    def close(self) -> int:
        """How many connections there were; they are closed too."""
        count = 0
        with self._door, suppress(BlockingIOError):
            while True:
                self._door.accept()[0].close()
                count += 1
        return count


def test_out_1_with_the_broker_out_enqueue_is_one_round_trip_and_nothing_is_lost(
    make_fleet: Callable[..., Fleet], postgresql_url: str
) -> None:
    """Broker and result backend take connections and never answer: whoever asked them anything would hang."""
    with private_redis() as broker, wire(postgresql_url, POSTGRESQL.port) as counted:
        deaf = Deaf(broker.port)
        fleet = make_fleet("redis-postgresql", APP, own_broker=broker.url, own_store=counted.url)
        fleet.environment["APP_BACKEND"] = broker.url
        results = [fleet.app.add.delay(0, 0)]
        for number in range(1, 20):
            before = counted.round_trips
            results.append(fleet.app.add.delay(number, number))
            # nothing is prepared, since a wire stands between
            assert counted.round_trips == before + 1
        assert deaf.close() == 0
        relay = fleet.relay()
        relay.says("20 jobs wait in the store")
        broker.start()
        fleet.worker()
        assert [result.get(timeout=30) for result in results] == [2 * number for number in range(20)]
        assert fleet.counted() == {"add": 20}
        for process in fleet.workers:
            process.kill()
        fleet.store.close()


def test_out_5_a_row_that_commits_after_younger_ones_have_left_is_published(fleet: Fleet, shop: Engine) -> None:
    """A long transaction with an earlier row, and one whose clock was behind: a relay that remembered how far it was would pass them over."""
    fleet.worker()
    with Session(shop) as early, Session(shop) as behind:
        first = fleet.app.note.using(early).delay("first")
        second = fleet.app.note.using(behind).delay("behind")
        behind.execute(
            text("UPDATE guard_job SET due = due - 86400000000, created = created - 86400000000 WHERE id = :id"),
            {"id": second.id},
        )
        younger = fleet.app.note.delay("younger")
        fleet.settled(younger.id)
        assert fleet.marks() == ["note younger"]
        early.commit()
        behind.commit()
    for job in (first, second):
        fleet.settled(job.id)
    assert fleet.counted() == {"note first": 1, "note behind": 1, "note younger": 1}
