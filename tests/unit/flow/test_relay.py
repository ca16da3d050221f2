"""A relay and its store, with a broker that does as it is told."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import pytest

from celery_guard.contract.contract import Effective
from celery_guard.errors import JobFailed, StoreUnavailableError
from celery_guard.flow.relay import Published, Relay
from celery_guard.flow.sweep import Sweep
from celery_guard.job.row import Outgoing
from celery_guard.job.state import Kind, Reason, State
from celery_guard.settings import read_settings
from celery_guard.store.protocol import Store
from celery_guard.testing.conformance.builders import NONE, new_job
from celery_guard.testing.conformance.moves import accept, eventually, found, succeed, taken_ids
from celery_guard.testing.databases import lose_message

from .nodes import Broker, Watched


def relay_on(store: Any, broker: Broker, **settings: Any) -> Relay:
    read = read_settings({"store": "sqlite://", "poll": 0.01, "sweep_every": 3600, **settings}, {}, {})
    sweep = Sweep(store, broker, read, lambda task: Effective(task=task), lambda task: True, "relay-1")
    return Relay(store, broker, sweep, read, "relay-1")


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


# -- a batch that is taken while another is published --------------------------------------------------------------------


class Slow(Broker):
    """Publishes a batch only once ``before`` has come true; says whether it did."""

    def __init__(self, *before: threading.Event) -> None:
        super().__init__()
        self.before = list(before)
        self.met: list[bool] = []

    def publish(self, rows: Sequence[Outgoing]) -> Published:
        if self.before:
            self.met.append(self.before.pop(0).wait(30))
        return super().publish(rows)


def taken_twice(watched: Watched, second: threading.Event) -> None:
    if watched.calls.count("take") == 2:
        second.set()


def test_behind_a_full_batch_the_next_is_taken_while_it_is_published(store: Store) -> None:
    second = threading.Event()
    watched = Watched(store, lambda name: taken_twice(watched, second))
    broker = Slow(second)
    jobs = [new_job() for _ in range(3)]
    accept(store, *jobs)
    assert relay_on(watched, broker, relay_batch=2).drain() == 3
    assert broker.met == [True]
    assert sorted(broker.taken) == sorted(job.id for job in jobs)
    assert {found(store, job.id).state for job in jobs} == {State.SENT}


def test_a_store_that_hangs_keeps_no_process_from_ending(store: Store) -> None:
    """The process of a relay that is a thread ends with its worker, whatever the relay waits for."""
    waited_for = set[str]()

    def after(name: str) -> None:
        thread = threading.current_thread()
        if thread is not threading.main_thread() and not thread.daemon:
            waited_for.add(thread.name)
        taken_twice(watched, second)

    second, watched = threading.Event(), Watched(store, after)
    accept(store, *(new_job() for _ in range(3)))
    broker = Slow(second)
    relay_on(watched, broker, relay_batch=2).drain()
    assert broker.met == [True]
    assert waited_for == set()


def test_behind_a_batch_that_is_not_full_nothing_is_taken_ahead(store: Store) -> None:
    watched = Watched(store)
    accept(store, new_job())
    assert relay_on(watched, Broker(), relay_batch=2).once() == 1
    assert watched.calls.count("take") == 1
    accept(store, *(new_job() for _ in range(2)))
    assert relay_on(watched, Broker(), relay_batch=2).once() == 2
    assert watched.calls.count("take") == 2, "once is one batch"


def test_while_the_broker_is_slow_nothing_is_taken_ahead(store: Store) -> None:
    """A batch that waits for one that takes half of a hold would be another relay's before it is marked."""
    second, hold = threading.Event(), 0.02

    class Sleepy(Slow):
        def publish(self, rows: Sequence[Outgoing]) -> Published:
            published = super().publish(rows)
            time.sleep(hold)
            return published

    watched = Watched(store, lambda name: taken_twice(watched, second))
    accept(store, *(new_job() for _ in range(8)))
    relay = relay_on(watched, Sleepy(second), relay_batch=2, relay_hold=hold)
    eventually(lambda: relay.drain() == 0)
    calls = "".join(name[0] for name in watched.calls if name in ("take", "sent"))
    assert re.fullmatch("tts(ts)+t+", calls), calls


def test_an_outage_gives_back_what_was_taken_ahead(store: Store) -> None:
    second = threading.Event()
    watched = Watched(store, lambda name: taken_twice(watched, second))
    jobs, broker = [new_job() for _ in range(4)], Slow(second)
    accept(store, *jobs)
    broker.out = ConnectionError("refused")
    assert relay_on(watched, broker, relay_batch=2).drain() == 2
    assert broker.met == [True]
    assert sorted(taken_ids(store)) == sorted(job.id for job in jobs)
    assert {found(store, job.id).refusals for job in jobs} == {0}


def test_a_relay_that_is_told_to_stop_gives_back_what_it_took_ahead(store: Store) -> None:
    stop, second = threading.Event(), threading.Event()

    def after(name: str) -> None:
        taken_twice(watched, second)
        if name == "sent":
            stop.set()

    watched, jobs = Watched(store, after), [new_job() for _ in range(4)]
    broker = Slow(second)
    accept(store, *jobs)
    relay_on(watched, broker, relay_batch=2).run(stop)
    assert len(broker.taken) == 2
    assert sorted([*broker.taken, *taken_ids(store)]) == sorted(job.id for job in jobs)


def test_a_relay_that_lost_its_slot_gives_back_what_it_took_ahead(store: Store) -> None:
    stop, second, back = threading.Event(), threading.Event(), list[str]()

    def after(name: str) -> None:
        taken_twice(watched, second)
        if name == "sent":
            # it was paused for so long that others are active
            relay._hold_again = 0.0
            store.release("relay:0", "relay-1")
            for slot in ("relay:0", "relay:1"):
                assert store.hold(slot, "other", timedelta(hours=1))
        if watched.calls.count("hold") == 3:
            back.extend(taken_ids(store))
            stop.set()

    watched, jobs = Watched(store, after), [new_job() for _ in range(4)]
    broker = Slow(second)
    relay = relay_on(watched, broker, relay_batch=2)
    accept(store, *jobs)
    relay.run(stop)
    assert len(broker.taken) == 2
    assert sorted([*broker.taken, *back]) == sorted(job.id for job in jobs)


def test_a_store_that_fails_while_a_batch_is_taken_ahead_loses_nothing(store: Store) -> None:
    class Failing(Watched):
        def take(self, *args: Any) -> Any:
            self.calls.append("take")
            if self.calls.count("take") == 2:
                raise StoreUnavailableError("away")
            return store.take(*args)

    watched, broker, jobs = Failing(store), Broker(), [new_job() for _ in range(4)]
    accept(store, *jobs)
    relay = relay_on(watched, broker, relay_batch=2)
    with pytest.raises(StoreUnavailableError):
        relay.drain()
    assert relay.drain() == 2
    assert sorted(broker.taken) == sorted(job.id for job in jobs)


def test_what_was_taken_ahead_is_not_published_once_the_hold_is_over(store: Store) -> None:
    second, others = threading.Event(), list[str]()

    class Hanging(Slow):
        def publish(self, rows: Sequence[Outgoing]) -> Published:
            published = super().publish(rows)
            while not others:
                others.extend(set(taken_ids(store, token="another")) - set(self.taken))
            return published

    watched, jobs = Watched(store, lambda name: taken_twice(watched, second)), [new_job() for _ in range(3)]
    broker = Hanging(second)
    accept(store, *jobs)
    relay_on(watched, broker, relay_batch=2, relay_hold=0.05).drain()
    assert len(broker.taken) == 2
    assert sorted([*broker.taken, *others]) == sorted(job.id for job in jobs)


def test_what_was_taken_ahead_is_published_though_the_batch_before_could_not_be_marked(store: Store) -> None:
    stop, jobs, broker = threading.Event(), [new_job() for _ in range(3)], Broker()

    class Failing(Watched):
        def sent(self, *args: Any) -> int:
            self.calls.append("sent")
            if self.calls.count("sent") == 1:
                raise StoreUnavailableError("away")
            stop.set()
            return store.sent(*args)

    accept(store, *jobs)
    store.wait(NONE)  # the hint that they have given
    relay_on(Failing(store), broker, relay_batch=2).run(stop)
    assert sorted(broker.taken) == sorted(job.id for job in jobs)
    assert found(store, broker.taken[2]).state is State.SENT


def test_what_cannot_be_given_back_is_due_again_when_the_hold_is_over(
    store: Store, caplog: pytest.LogCaptureFixture
) -> None:
    class Deaf(Watched):
        def postpone(self, *args: Any, **kwargs: Any) -> int:
            raise StoreUnavailableError("away")

    second = threading.Event()
    watched = Deaf(store, lambda name: taken_twice(watched, second))
    broker = Slow(second)
    accept(store, *(new_job() for _ in range(4)))
    relay = relay_on(watched, broker, relay_batch=2, relay_hold=0.05)
    broker.out = ConnectionError("refused")
    with pytest.raises(StoreUnavailableError):
        relay.drain()
    assert "could not be given back" in caplog.text
    back: set[str] = set()
    while len(back) < 4:
        back.update(eventually(lambda: taken_ids(store)))
