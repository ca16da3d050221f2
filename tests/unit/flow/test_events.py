"""What those who watch are told of a job's journey, in which order, and that none of them can hold it up."""

from __future__ import annotations

import logging
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from celery_guard.contract.contract import Effective
from celery_guard.contract.retry import Retry
from celery_guard.contract.timing import Timing
from celery_guard.errors import LeaseLost
from celery_guard.flow.context import ownership_of
from celery_guard.flow.lease import LeaseKeeper
from celery_guard.flow.relay import Relay
from celery_guard.flow.run import Runner
from celery_guard.flow.sweep import Sweep
from celery_guard.job import event
from celery_guard.job.delivery import Delivery, Done
from celery_guard.job.event import Event
from celery_guard.job.outcome import Failed, Outcome, Returned, Stopped
from celery_guard.job.state import State
from celery_guard.settings import read_settings
from celery_guard.store.protocol import Store
from celery_guard.testing.conformance.builders import new_job
from celery_guard.testing.conformance.moves import accept, eventually
from celery_guard.watch.lines import Lines
from celery_guard.watch.observers import Observers

from .nodes import Broker
from .test_leases import Bodied

CONTRACT = Effective(task="shop.charge", retry=Retry(max_attempts=2, base=0.001, cap=0.001), timing=Timing(lease=30))


class Node:
    """A relay, a sweep and a process of a worker that tell one list."""

    def __init__(self, store: Store, lease: float = 30) -> None:
        self.heard: list[Event] = []
        settings = read_settings(
            {"store": "sqlite://", "publish_attempts": 2, "crash_base": 0.001, "crash_cap": 0.001}, {}, {}
        )
        self.contract = Effective(task="shop.charge", retry=CONTRACT.retry, timing=Timing(lease=lease))
        self.broker = Broker()
        tell = self.heard.append
        self.keeper = LeaseKeeper(store, tell)
        self.runner = Runner(store, self.keeper, settings, lambda: "node", tell)
        self.sweep = Sweep(store, self.broker, settings, lambda task: self.contract, lambda task: True, "sweep", tell)
        self.relay = Relay(store, self.broker, self.sweep, settings, "relay", tell)

    def run(self, id: str, body: Callable[[Any], Outcome]) -> Any:
        return self.runner.run(Delivery(id, "shop.charge", self.contract, "node", False, False), Bodied(body))

    @property
    def words(self) -> list[str]:
        return [type(told).__name__ for told in self.heard]


@pytest.fixture
def node(store: Store) -> Node:
    return Node(store)


def test_a_jobs_journey_is_told_in_the_order_in_which_it_happened(store: Store, node: Node) -> None:
    job = new_job()
    accept(store, job)
    node.relay.drain()
    node.run(job.id, lambda running: Failed(ConnectionError("away")))
    eventually(node.relay.drain)
    node.run(job.id, lambda running: Returned(None))
    node.run(job.id, lambda running: Returned(None))
    assert node.words == ["Published", "Claimed", "Settled", "Published", "Claimed", "Settled", "Ignored"]
    first, last = node.heard[2], node.heard[5]
    assert isinstance(first, event.Settled)
    assert isinstance(last, event.Settled)
    assert (first.state, str(first.reason), first.claim.attempt, first.claim.fence) == (State.PENDING, "retry", 1, 1)
    assert first.failure is not None
    assert first.failure.failure_class == "transient"
    assert (last.state, last.failure, last.claim.attempt) == (State.SUCCEEDED, None, 2)
    assert {told.id for told in node.heard} == {job.id}
    assert {told.task for told in node.heard} == {"shop.charge"}


def test_a_lapsed_lease_and_what_comes_after_it_are_told(store: Store) -> None:
    node, job = Node(store, lease=0.05), new_job()
    accept(store, job)
    node.relay.drain()
    node.run(job.id, lambda running: Stopped(LeaseLost("somebody else's by now")))
    eventually(node.sweep.recover_lapsed)
    # on a busy machine the keeper may come too late for so short a lease, and says so
    words = [word for word in node.words if word != "RenewedLate"]
    assert words == ["Published", "Claimed", "Fenced", "Recovered"]
    recovered = node.heard[-1]
    assert isinstance(recovered, event.Recovered)
    assert (recovered.crashed, recovered.state, recovered.fence) == (True, State.PENDING, 1)


def test_a_lease_that_is_renewed_after_it_lapsed_is_told_as_late(store: Store) -> None:
    node, job = Node(store), new_job()
    accept(store, job)
    node.relay.drain()

    def body(running: Any) -> Outcome:
        own = ownership_of(running)
        own.renewed -= 31
        node.keeper.renew_now(own)
        return Returned(None)

    assert node.run(job.id, body) == Done(1, told=True)
    assert node.words == ["Published", "Claimed", "RenewedLate", "Settled"]
    late = node.heard[2]
    assert isinstance(late, event.RenewedLate)
    assert late.late >= timedelta(seconds=1)


def test_an_attempt_that_cannot_write_its_end_is_told_as_abandoned(store: Store, node: Node) -> None:
    job = new_job()
    accept(store, job)
    node.relay.drain()

    def body(running: Any) -> Outcome:
        raise SystemExit(1)

    with pytest.raises(SystemExit):
        node.run(job.id, body)
    assert node.words == ["Published", "Claimed", "Abandoned"]


def test_a_message_that_the_broker_refuses_is_told_and_so_is_its_end(store: Store, node: Node) -> None:
    job = new_job()
    accept(store, job)
    node.broker.refuses[job.id] = ValueError("no such exchange")
    node.relay.drain()
    store.replay([job.id])
    eventually(lambda: node.relay.drain() and len(node.heard) == 2)
    assert node.words == ["Refused", "Ended"]
    ended = node.heard[1]
    assert isinstance(ended, event.Ended)
    assert (ended.state, str(ended.reason)) == (State.DEAD, "unpublishable")


class Broken:
    def __init__(self) -> None:
        self.asked = 0

    def told(self, happened: Event) -> None:
        self.asked += 1
        raise RuntimeError("the collector is gone")


def test_a_broken_observer_harms_neither_the_job_nor_those_who_are_told_after_it(
    store: Store, node: Node, caplog: pytest.LogCaptureFixture
) -> None:
    class Heard:
        def told(self, happened: Event) -> None:
            node.heard.append(happened)

    observers, broken = Observers(), Broken()
    observers.add(broken)
    observers.add(Heard())
    node.runner._tell = observers.tell
    for _ in range(2):
        job = new_job()
        accept(store, job)
        store.take("relay", 10, timedelta(hours=1))
        assert node.run(job.id, lambda running: Returned(None)) == Done(1, told=True)
    assert node.words == ["Claimed", "Settled"] * 2
    assert broken.asked == 4
    assert [record.message for record in caplog.records] == ["Broken failed at Claimed; jobs go on"]


def test_an_event_cannot_be_changed_by_those_who_are_told(store: Store, node: Node) -> None:
    job = new_job()
    accept(store, job)
    node.relay.drain()
    with pytest.raises(AttributeError):
        node.heard[0].task = "other"  # type: ignore[misc]


def test_what_nobody_takes_note_of_is_made_for_nobody(store: Store, node: Node) -> None:
    node.relay._hears = lambda kind: kind is not event.Published
    accept(store, new_job())
    assert node.relay.drain() == 1
    assert node.heard == []


@pytest.mark.parametrize("level", [logging.DEBUG, logging.INFO])
def test_the_log_takes_note_of_what_goes_on_where_it_is_read(caplog: pytest.LogCaptureFixture, level: int) -> None:
    observers, lines = Observers(), Lines()
    observers.add(lines, lines.hears)
    caplog.set_level(level, "celery_guard.job")
    assert observers.hear(event.Published) is (level == logging.DEBUG)
    assert observers.hear(event.Settled)
    observers.tell(event.Published("id", "task", "queue", 1))
    assert len(caplog.records) == (level == logging.DEBUG)
    observers.add(Broken())
    assert observers.hear(event.Published)
