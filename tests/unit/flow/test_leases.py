"""Attempts that lose their lease, and leases that are kept alive whatever this process's clock says."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from celery_guard.contract.contract import Effective
from celery_guard.contract.retry import Retry
from celery_guard.contract.timing import Timing
from celery_guard.errors import LeaseLost
from celery_guard.flow.context import RunningJob, ownership_of
from celery_guard.flow.lease import LeaseKeeper, _Held
from celery_guard.flow.ownership import Ownership
from celery_guard.flow.run import Runner
from celery_guard.flow.skew import LIMIT, Skew
from celery_guard.flow.sweep import Sweep
from celery_guard.job.delivery import Delivery, Done, Ending, Stale
from celery_guard.job.instant import Instant
from celery_guard.job.outcome import Outcome, Returned, Stopped
from celery_guard.job.row import Job, StoredResult
from celery_guard.job.state import State
from celery_guard.job.tally import Count
from celery_guard.settings import read_settings
from celery_guard.store.protocol import Store
from celery_guard.testing.conformance.builders import new_job
from celery_guard.testing.conformance.moves import accept, eventually, found, start


class Bodied:
    """A delivery whose body is a function of the test's."""

    def __init__(self, body: Callable[[RunningJob], Outcome]) -> None:
        self._body = body

    def run(self, job: RunningJob) -> Outcome:
        return self._body(job)

    def given(self, job: RunningJob, result: StoredResult | None) -> Outcome:
        return Returned(result)


class Node:
    """What a process of a worker has, and a sweep."""

    def __init__(self, store: Store, contract: Effective, name: str = "node") -> None:
        self.store = store
        self.contract = contract
        self.settings = read_settings({"store": "sqlite://", "crash_base": 0.001, "crash_cap": 0.001}, {}, {})
        self.keeper = LeaseKeeper(store)
        self.runner = Runner(store, self.keeper, self.settings, lambda: name)
        self.sweep = Sweep(store, None, self.settings, lambda task: contract, lambda task: True, name)  # type: ignore[arg-type]

    def run(self, id: str, body: Callable[[RunningJob], Outcome]) -> Ending:
        """Take one delivery of the job, as soon as it is due."""
        eventually(lambda: self.store.take("relay", 10, timedelta(hours=1)))
        return self.runner.run(Delivery(id, "shop.charge", self.contract, "node", False, False), Bodied(body))


def contract(lease: float, **retry: Any) -> Effective:
    return Effective(task="shop.charge", timing=Timing(lease=lease), retry=Retry(**retry))


def classes(job: Job) -> list[str]:
    return [failure.failure_class for failure in job.failures]


def test_lock_2_an_attempt_that_stops_for_its_lost_lease_writes_nothing_and_is_counted_as_a_crash(store: Store) -> None:
    """So a job whose attempts lose their leases each time comes to an end."""
    job = new_job()
    accept(store, job)
    node = Node(store, contract(0.05, max_crashes=2))
    for attempt in (1, 2):
        ending = node.run(job.id, lambda running: Stopped(LeaseLost("somebody else's by now")))
        assert ending == Stale(attempt)
        assert found(store, job.id).state is State.RUNNING
        eventually(node.sweep.recover_lapsed)
    row = found(store, job.id)
    assert (row.state.value, row.reason and row.reason.value, row.crashes) == ("dead", "crashed", 2)
    assert sorted(classes(row)) == ["superseded", "superseded", "unknown", "unknown"]


def test_lock_2_a_body_that_asks_is_told_that_it_lost_its_lease(store: Store) -> None:
    job = new_job()
    accept(store, job)
    slow, quick = Node(store, contract(0.05), "slow"), Node(store, contract(30), "quick")

    def body(running: RunningJob) -> Outcome:
        slow.keeper.let_go(ownership_of(running))  # this process was paused, and renewed nothing
        eventually(quick.sweep.recover_lapsed)
        assert quick.run(job.id, lambda other: Returned(None)) == Done(2, told=True)
        assert not running.owned()
        with pytest.raises(LeaseLost):
            running.check()
        return Returned(None)

    assert slow.run(job.id, body) == Stale(1)
    row = found(store, job.id)
    assert (row.state, row.fence) == (State.SUCCEEDED, 2)
    assert "superseded" in classes(row)


@pytest.mark.parametrize("hours", [-1, 1])
def test_lock_3_a_clock_that_is_stepped_during_a_run_neither_frees_nor_keeps_its_lease(
    store: Store, monkeypatch: pytest.MonkeyPatch, hours: int
) -> None:
    job = new_job()
    accept(store, job)
    node = Node(store, contract(0.6))
    renewed = threading.Semaphore(0)
    renew, real = store.renew, time.time

    def counted(*given: Any) -> Any:
        answer = renew(*given)
        renewed.release(len(answer))
        return answer

    monkeypatch.setattr(store, "renew", counted)

    def body(running: RunningJob) -> Outcome:
        monkeypatch.setattr(time, "time", lambda: real() + hours * 3600)
        for _ in range(4):  # longer than the lease
            assert renewed.acquire(timeout=20)
        assert running.owned()
        running.check()
        assert node.sweep.recover_lapsed() == 0
        return Returned(None)

    assert node.run(job.id, body) == Done(1, told=True)
    assert found(store, job.id).crashes == 0


def test_leases_that_were_all_late_are_renewed_first_and_then_counted_in_one_write(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As after an outage of the store: a write for each of them would let those lapse that come last."""
    calls: list[tuple[str, int]] = []
    renew, count = store.renew, store.count

    def renewed(leases: Any, *given: Any) -> Any:
        calls.append(("renew", len(leases)))
        return renew(leases, *given)

    def counted(what: Count, ids: Any) -> None:
        calls.append((what.value, len(ids)))
        count(what, ids)

    monkeypatch.setattr(store, "renew", renewed)
    monkeypatch.setattr(store, "count", counted)
    long_ago = time.monotonic() - 3600
    lengths = [timedelta(seconds=seconds) for seconds in (30, 30, 60)]
    owns = [Ownership(start(store), store, lease, None, long_ago) for lease in lengths]
    LeaseKeeper(store)._renew([_Held(own, lease, Timing()) for own, lease in zip(owns, lengths, strict=True)])
    assert calls == [("renew", 2), ("renew", 1), ("renewed_late", 3)]
    assert [own.owned() for own in owns] == [True] * 3
    [total] = [one.total for one in store.counted() if one.what is Count.RENEWED_LATE]
    assert total == 3


def test_bodies_that_are_shorter_than_a_third_of_their_lease_do_not_wake_the_keepers_thread(store: Store) -> None:
    node = Node(store, contract(3600))
    waits = 0

    class Counting(threading.Condition):
        def wait(self, timeout: float | None = None) -> bool:
            nonlocal waits
            waits += 1
            return super().wait(timeout)

    node.keeper._changed = Counting()
    for _ in range(20):
        job = new_job()
        accept(store, job)
        assert node.run(job.id, lambda running: Returned(None)) == Done(1, told=True)
    # once for the first lease; once more if the thread had begun to wait before that
    assert waits <= 2


def test_a_shorter_lease_than_the_ones_that_are_held_is_renewed_in_its_own_time(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    jobs = [new_job(), new_job()]
    for job in jobs:
        accept(store, job)
    node = Node(store, contract(3600))
    renewed: list[str] = []
    both = threading.Event()
    renew = store.renew

    def noted(*given: Any) -> Any:
        answer = renew(*given)
        renewed.extend(renewal.id for renewal in answer)
        both.set()
        return answer

    monkeypatch.setattr(store, "renew", noted)

    def short(running: RunningJob) -> Outcome:
        assert both.wait(20)
        return Returned(None)

    def long(running: RunningJob) -> Outcome:
        other = Runner(store, node.keeper, node.settings, lambda: "node")
        other.run(Delivery(jobs[1].id, "shop.charge", contract(0.6), "node", False, False), Bodied(short))
        return Returned(None)

    assert node.run(jobs[0].id, long) == Done(1, told=True)
    assert renewed[0] == jobs[1].id


def test_lock_3_a_publisher_whose_clock_is_wrong_is_warned_about_once(caplog: pytest.LogCaptureFixture) -> None:
    skew, accepted = Skew(), Instant(1_700_000_000_000_000)
    with caplog.at_level(logging.WARNING):
        for seconds in (0.0, 29.0, -29.0):
            skew.compare("near", 1_700_000_000 + seconds, accepted)
        skew.compare("unknown", None, accepted)
        assert not caplog.messages
        for seconds in (180.0, 181.0):
            skew.compare("fast", 1_700_000_000 + seconds, accepted)
        skew.compare("slow", 1_700_000_000 - LIMIT.total_seconds() - 1, accepted)
    assert [message.split(": ")[0] for message in caplog.messages] == [
        "the clock of the publisher fast is 0:03:00 ahead of the store's",
        "the clock of the publisher slow is 0:00:31 behind the store's",
    ]
