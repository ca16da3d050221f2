"""A batch that is taken while another is published."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import pytest

from celery_guard.errors import StoreUnavailableError
from celery_guard.flow.relay import Published
from celery_guard.job.row import Outgoing
from celery_guard.job.state import State
from celery_guard.store.protocol import Store
from celery_guard.testing.conformance.builders import NONE, new_job
from celery_guard.testing.conformance.moves import accept, eventually, found, taken_ids

from .nodes import Broker, Watched, relay_on


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
