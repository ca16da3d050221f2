"""A relay and its store, with a broker that does as it is told."""

from __future__ import annotations

import threading
from datetime import timedelta

import pytest

from celery_guard.errors import JobFailed
from celery_guard.job.state import Kind, Reason, State
from celery_guard.store.protocol import Store
from celery_guard.testing.conformance.builders import NONE, new_job
from celery_guard.testing.conformance.moves import accept, eventually, found, succeed
from celery_guard.testing.databases import lose_message

from .nodes import Broker, Watched, relay_on


def test_an_idle_relay_asks_and_writes_nothing(store: Store) -> None:
    stop = threading.Event()
    watched = Watched(store, lambda name: stop.set() if watched.calls.count("next_due") == 3 else None)
    relay_on(watched, Broker()).run(stop)
    assert watched.calls.count("next_due") == 3
    assert "take" not in watched.calls


def test_a_job_that_is_accepted_while_the_relay_is_idle_goes_out(store: Store) -> None:
    stop, job, broker = threading.Event(), new_job(), Broker()

    def after(name: str) -> None:
        if name == "wait" and watched.calls.count("wait") == 2:
            accept(store, job)
        if name == "sent":
            stop.set()

    watched = Watched(store, after)
    relay_on(watched, broker).run(stop)
    assert broker.taken == [job.id]
    assert found(store, job.id).state is State.SENT


def test_a_relay_that_took_a_full_batch_takes_the_next_without_asking(store: Store) -> None:
    stop = threading.Event()
    accept(store, *(new_job() for _ in range(5)))
    watched = Watched(store, lambda name: stop.set() if watched.calls.count("take") == 3 else None)
    relay_on(watched, Broker(), relay_batch=2).run(stop)
    asked = [name for name in watched.calls if name in ("next_due", "take")]
    assert asked == ["next_due", "take", "take", "take"]


def test_a_relay_that_finds_the_due_rows_under_anothers_hands_rests(store: Store) -> None:
    """A row that is locked by another relay is due, and cannot be taken: no reason to turn without a pause."""
    stop = threading.Event()

    class Locked(Watched):
        def next_due(self) -> timedelta:
            self.calls.append("next_due")
            return timedelta(0)

    watched = Locked(store, lambda name: stop.set() if watched.calls.count("take") == 3 else None)
    relay_on(watched, Broker()).run(stop)
    turns = [name for name in watched.calls if name in ("next_due", "take", "wait")]
    assert turns == ["next_due", "take", "wait", "next_due", "take", "wait", "next_due", "take"]


def test_a_relay_gives_its_slot_back(store: Store) -> None:
    stop = threading.Event()
    watched = Watched(store, lambda name: stop.set() if name == "next_due" else None)
    relay_on(watched, Broker()).run(stop)
    assert [beat for beat in store.heartbeats() if beat.live] == []


def test_a_relay_without_a_slot_stands_by(store: Store) -> None:
    for number in range(2):
        assert store.hold(f"relay:{number}", f"other-{number}", timedelta(hours=1))
    stop = threading.Event()
    accept(store, new_job())
    watched = Watched(store, lambda name: stop.set() if watched.calls.count("hold") == 4 else None)
    relay_on(watched, Broker()).run(stop)
    assert {*watched.calls} == {"hold"}


def test_an_outage_gives_rows_back_unharmed(store: Store) -> None:
    job, broker = new_job(), Broker()
    accept(store, job)
    relay = relay_on(store, broker)
    broker.out = ConnectionError("refused")
    assert relay.drain() == 1
    assert relay.broker_out
    row = found(store, job.id)
    assert (row.state, row.reason, row.refusals, row.publications) == (State.PENDING, Reason.NEW, 0, 0)
    broker.out = None
    assert relay.drain() == 1
    assert not relay.broker_out
    assert broker.taken == [job.id]


def test_a_refused_row_is_put_off_alone(store: Store) -> None:
    bad, good, broker = new_job(), new_job(), Broker()
    accept(store, bad, good)
    broker.refuses[bad.id] = ValueError("not this one")
    relay_on(store, broker).once()
    assert broker.taken == [good.id]
    row = found(store, bad.id)
    assert (row.state, row.refusals) == (State.PENDING, 1)


def test_a_row_that_is_refused_too_often_is_dead(store: Store) -> None:
    job, broker = new_job(), Broker()
    accept(store, job)
    broker.refuses[job.id] = ValueError("never")
    relay_on(store, broker, publish_attempts=1).once()
    row = found(store, job.id)
    assert (row.state, row.reason) == (State.DEAD, Reason.UNPUBLISHABLE)
    assert [(failure.type_name, failure.message) for failure in row.failures] == [("ValueError", "never")]


def test_a_job_whose_deadline_is_over_is_ended_and_not_published(store: Store) -> None:
    job, broker = new_job(deadline_in=timedelta(milliseconds=1)), Broker()
    accept(store, job)
    eventually(relay_on(store, broker).once)
    assert broker.taken == []
    assert found(store, job.id).reason is Reason.EXPIRED


def test_a_dead_job_that_cannot_be_published_is_told_from_here(store: Store) -> None:
    job, broker = new_job(), Broker()
    accept(store, job)
    broker.refuses[job.id] = ValueError("never")
    relay = relay_on(store, broker, publish_attempts=1)
    relay.once()
    eventually(relay.once)
    assert broker.told == [job.id]
    assert found(store, job.id).told


def test_a_job_whose_message_is_gone_is_dead_at_once_and_says_what_is_missing(store: Store, store_url: str) -> None:
    job, good, broker = new_job(), new_job(), Broker()
    accept(store, job, good)
    lose_message(store_url, job.id)
    relay = relay_on(store, broker)
    relay.once()
    assert broker.taken == [good.id]
    row = found(store, job.id)
    assert (row.state, row.reason, row.told) == (State.DEAD, Reason.UNPUBLISHABLE, False)
    [failure] = row.failures
    assert f"The message of job {job.id} (generation 0) is gone from the store" in failure.message
    eventually(relay.once)
    assert (broker.told, found(store, job.id).told) == ([job.id], True)


def test_a_success_whose_message_is_gone_before_it_was_told_is_no_failure(store: Store, store_url: str) -> None:
    granted, broker = succeed(store, told=False, tell_within=NONE), Broker()
    lose_message(store_url, granted.id)
    eventually(relay_on(store, broker).once)
    row = found(store, granted.id)
    assert (row.state, row.told, row.due) == (State.SUCCEEDED, True, None)
    assert [failure.type_name for failure in row.failures] == ["celery_guard.errors.JobFailed"]
    assert broker.told == []


def test_a_success_that_is_refused_before_it_was_told_is_tried_again_and_is_no_failure(store: Store) -> None:
    granted, broker = succeed(store, told=False, tell_within=NONE), Broker()
    broker.refuses[granted.id] = ValueError("no such queue, yet")
    eventually(relay_on(store, broker).once)
    row = found(store, granted.id)
    assert (row.state, row.told, row.refusals, broker.told) == (State.SUCCEEDED, False, 1, [])


def test_a_job_whose_message_was_damaged_is_dead_at_the_first_try(store: Store) -> None:
    job, granted, broker = new_job(), succeed(store, told=False, tell_within=NONE), Broker()
    accept(store, job)
    broker.refuses = dict.fromkeys((job.id, granted.id), JobFailed("its delivery was damaged"))
    relay = relay_on(store, broker)
    eventually(lambda: relay.once() and found(store, granted.id).told)
    row, done = found(store, job.id), found(store, granted.id)
    assert (row.state, row.reason, row.failures[0].message) == (
        State.DEAD,
        Reason.UNPUBLISHABLE,
        "its delivery was damaged",
    )
    assert (done.state, done.failures[0].message) == (State.SUCCEEDED, "its delivery was damaged")


def test_a_message_without_a_guard_ends_when_it_is_published(store: Store) -> None:
    carried, broker = new_job(kind=Kind.CARRIED), Broker()
    accept(store, carried)
    relay_on(store, broker).once()
    assert broker.taken == [carried.id]
    assert found(store, carried.id).state is State.SUCCEEDED


def test_a_batch_that_was_held_for_too_long_is_said_aloud(store: Store, caplog: pytest.LogCaptureFixture) -> None:
    accept(store, new_job())
    relay_on(store, Broker(), relay_hold=1e-6).once()
    assert "longer than relay_hold" in caplog.text
