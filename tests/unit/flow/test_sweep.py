"""What the sweep makes of leases that lapse and messages that nobody claims."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Any

import pytest

from celery_guard.contract.contract import Effective
from celery_guard.contract.retry import Retry
from celery_guard.errors import StoreUnavailableError
from celery_guard.flow.sweep import Sweep
from celery_guard.job.row import NewJob
from celery_guard.job.state import Reason, State
from celery_guard.settings import read_settings
from celery_guard.store.protocol import Store
from celery_guard.testing.conformance.builders import new_job, succeeded
from celery_guard.testing.conformance.moves import eventually, found, lapse, start, suspect

from .nodes import Broker


def sweep_on(
    store: Any, broker: Broker | None = None, knows: bool = True, contract: Effective | None = None, **settings: Any
) -> Sweep:
    read = read_settings({"store": "sqlite://", "crash_base": 0.001, "crash_cap": 0.001, **settings}, {}, {})
    held = contract or Effective(task="shop.charge")
    return Sweep(store, broker or Broker(), read, lambda task: held, lambda task: knows, "sweep-1")


def lost(store: Store, job: NewJob | None = None) -> str:
    """A message that was published, and that nobody claims; its id."""
    return suspect(store, job).id


def test_a_job_whose_lease_lapsed_comes_back(store: Store) -> None:
    granted, _ = lapse(store)
    assert sweep_on(store).recover_lapsed() == 1
    row = found(store, granted.id)
    assert (row.state, row.reason, row.crashes) == (State.PENDING, Reason.LOST, 1)
    assert re.search(r"which ended \d+\.\d s after the start$", row.failures[0].message)


def test_a_job_whose_owner_came_back_is_left_to_it(store: Store) -> None:
    """The sweep saw the lease lapsed; the owner was faster with its settle."""
    granted, seen = lapse(store)
    sweep = sweep_on(store)

    class Late:
        def lapsed(self, limit: int) -> list[Any]:
            assert store.settle(succeeded(granted))
            return [seen]

        recover = staticmethod(store.recover)

    sweep._store = Late()  # type: ignore[assignment]
    assert sweep.recover_lapsed() == 0
    assert found(store, granted.id).state is State.SUCCEEDED


def test_a_job_that_crashed_too_often_is_dead(store: Store) -> None:
    granted, _ = lapse(store)
    sweep = sweep_on(store, contract=Effective(task="shop.charge", retry=Retry(max_crashes=1)))
    assert sweep.recover_lapsed() == 1
    row = found(store, granted.id)
    assert (row.state, row.reason) == (State.DEAD, Reason.CRASHED)


def test_a_live_lease_is_left_alone(store: Store) -> None:
    start(store)
    assert sweep_on(store).recover_lapsed() == 0


@pytest.mark.parametrize("depth", [0, None], ids=["the queue is empty", "the broker does not say"])
def test_a_message_that_cannot_be_waiting_is_published_again(store: Store, depth: int | None) -> None:
    id, broker = lost(store), Broker()
    broker.depths["default"] = depth
    assert sweep_on(store, broker).recover_unclaimed() == 1
    row = found(store, id)
    assert (row.state, row.reason) == (State.PENDING, Reason.NEW)


def test_a_message_in_a_long_queue_is_not_lost(store: Store) -> None:
    id, broker = lost(store), Broker()
    broker.depths["default"] = 10_000
    assert sweep_on(store, broker).recover_unclaimed() == 0
    assert found(store, id).state is State.SENT
    assert store.suspects(10) == [], "it is looked at again later"


def test_nothing_is_called_lost_while_the_broker_is_away(store: Store) -> None:
    id, broker = lost(store), Broker()
    broker.out = ConnectionError("refused")
    assert sweep_on(store, broker).recover_unclaimed() == 0
    assert found(store, id).state is State.SENT


@pytest.mark.parametrize(("knows", "reason"), [(True, Reason.NEVER_CLAIMED), (False, Reason.UNKNOWN_TASK)])
def test_a_message_that_nobody_ever_takes_is_dead_in_the_end(store: Store, knows: bool, reason: Reason) -> None:
    id = lost(store)
    assert sweep_on(store, knows=knows, max_publications=1).recover_unclaimed() == 1
    row = found(store, id)
    assert (row.state, row.reason) == (State.DEAD, reason)
    assert row.failures


def test_a_best_effort_job_that_nobody_takes_is_dropped_with_a_record(store: Store) -> None:
    id = lost(store)
    sweep = sweep_on(store, contract=Effective(task="shop.charge", best_effort=True), max_publications=1)
    assert sweep.recover_unclaimed() == 1
    assert found(store, id).state is State.DROPPED


def test_a_message_whose_deadline_is_over_is_given_up_though_it_waits(store: Store) -> None:
    broker = Broker()
    broker.depths["default"] = 10_000
    id = lost(store, new_job(deadline_in=timedelta(milliseconds=500)))
    eventually(lambda: sweep_on(store, broker, suspect_after=0.01).recover_unclaimed())
    assert found(store, id).reason is Reason.EXPIRED


def test_the_sweep_waits_between_two_passes(store: Store) -> None:
    sweep = sweep_on(store, sweep_every=3600)
    first, _ = lapse(store)
    sweep.maybe()
    assert found(store, first.id).reason is Reason.LOST
    second, _ = lapse(store)
    sweep.maybe()
    assert found(store, second.id).state is State.RUNNING


def test_a_replay_whose_steps_take_long_leaves_a_relay_the_most_of_its_time(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [1000.0]
    monkeypatch.setattr("celery_guard.flow.sweep.time.monotonic", lambda: now[0])
    sweep = sweep_on(store, sweep_every=3600)
    steps: list[float] = []

    class Slow:
        def once(self) -> int:
            steps.append(now[0])
            now[0] += 0.1
            return 1

    sweep._driver = Slow()  # type: ignore[assignment]
    while now[0] < 1002:
        sweep.maybe()
        now[0] += 0.01
    assert 4 <= len(steps) <= 5


def test_a_replay_that_cannot_be_driven_keeps_nobody_from_recovering(store: Store) -> None:
    sweep = sweep_on(store)
    granted, _ = lapse(store)

    class Broken:
        def once(self) -> int:
            raise StoreUnavailableError("a row of the replay was evicted")

    sweep._driver = Broken()  # type: ignore[assignment]
    sweep.maybe()
    assert found(store, granted.id).reason is Reason.LOST
    sweep.maybe()


def test_messages_in_quarantine_are_kept_as_long_as_dead_letters(store: Store) -> None:
    words = {"headers": "", "content_type": "", "content_encoding": "", "reason": "nobody could open it"}
    store.quarantine(queue="default", body=b"?", **words)
    assert sweep_on(store).once() == 0
    assert len(store.quarantined()) == 1
    assert eventually(sweep_on(store, keep_dead=0.001).once) == 1
    assert store.quarantined() == []
