"""A body's progress on its way to the row: with the renewals and the end, and with no call of its own."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from celery_guard.contract.contract import Effective
from celery_guard.contract.timing import Timing
from celery_guard.errors import JobCancelled, LeaseLost, StoreUnavailableError
from celery_guard.flow.context import RunningJob, ownership_of
from celery_guard.job.delivery import Done, Stale
from celery_guard.job.outcome import Failed, Outcome, Returned, Stopped
from celery_guard.job.row import Job
from celery_guard.job.state import State
from celery_guard.store.protocol import Store
from celery_guard.testing.conformance.builders import new_job
from celery_guard.testing.conformance.moves import accept, eventually, found

from .nodes import Watched
from .test_leases import Node, contract

MINUTE = timedelta(minutes=1)


@pytest.fixture
def job(store: Store) -> str:
    new = new_job()
    accept(store, new)
    return new.id


def shown(row: Job) -> str | None:
    return None if row.progress is None else str(row.progress)


def test_it_goes_with_the_renewal_and_the_last_of_it_with_the_end(store: Store, job: str) -> None:
    watched = Watched(store)
    node = Node(watched, contract(3600))

    def body(running: RunningJob) -> Outcome:
        watched.calls.clear()
        for done in range(1000):
            running.progress(done, 2000)
        assert (watched.calls, found(store, job).progress) == ([], None)
        node.keeper.renew_now(ownership_of(running))
        row = found(store, job)
        assert shown(row) == "999 of 2000 (49 %)"
        assert row.progress is not None
        assert row.started is not None
        assert row.started <= row.progress.at <= store.clock() + MINUTE
        running.progress(2000, 2000, "all")
        assert shown(found(store, job)) == "999 of 2000 (49 %)"
        return Returned(None)

    assert node.run(job, body) == Done(1, told=True)
    assert watched.calls == ["renew", "settle"]
    assert shown(found(store, job)) == "2000 of 2000 (100 %): all"


def test_check_brings_it_within_a_second(store: Store, job: str) -> None:
    node = Node(store, contract(3600))

    def body(running: RunningJob) -> Outcome:
        running.progress(1)
        running.check()
        assert found(store, job).progress is None
        ownership_of(running).renewed -= 1  # a second later
        running.check()
        assert shown(found(store, job)) == "1"
        return Returned(None)

    assert node.run(job, body) == Done(1, told=True)


def test_what_a_store_that_was_out_did_not_hear_goes_with_the_next_renewal(
    store: Store, job: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    node, renew, tries = Node(store, contract(3600)), store.renew, [0]

    def out_once(*given: Any) -> Any:
        tries[0] += 1
        if tries[0] == 1:
            raise StoreUnavailableError("out")
        return renew(*given)

    monkeypatch.setattr(store, "renew", out_once)

    def body(running: RunningJob) -> Outcome:
        running.progress(1)
        node.keeper.renew_now(ownership_of(running))
        assert found(store, job).progress is None
        node.keeper.renew_now(ownership_of(running))
        assert shown(found(store, job)) == "1"
        return Returned(None)

    assert node.run(job, body) == Done(1, told=True)


@pytest.mark.parametrize(
    ("outcome", "state"),
    [(Failed(ValueError("no")), State.DEAD), (Stopped(JobCancelled("stop")), State.CANCELLED)],
    ids=["failed", "cancelled"],
)
def test_how_far_an_attempt_came_is_there_however_it_ended(
    store: Store, job: str, outcome: Outcome, state: State
) -> None:
    def body(running: RunningJob) -> Outcome:
        running.progress(3, 10, "page 3")
        return outcome

    Node(store, contract(3600)).run(job, body)
    row = found(store, job)
    assert (row.state, shown(row)) == (state, "3 of 10 (30 %): page 3")


def test_an_attempt_that_was_superseded_says_nothing_any_more(store: Store, job: str) -> None:
    slow, quick = Node(store, contract(0.05), "slow"), Node(store, contract(3600), "quick")

    def body(running: RunningJob) -> Outcome:
        own = ownership_of(running)
        slow.keeper.let_go(own)  # this process was paused, and renewed nothing
        running.progress(90)
        eventually(quick.sweep.recover_lapsed)

        def second(other: RunningJob) -> Outcome:
            other.progress(5)
            quick.keeper.renew_now(ownership_of(other))
            slow.keeper.hold(own, MINUTE, Timing())
            slow.keeper.renew_now(own)
            assert own.lost
            return Returned(None)

        assert quick.run(job, second) == Done(2, told=True)
        with pytest.raises(LeaseLost):
            running.check()
        return Returned(None)

    assert slow.run(job, body) == Stale(1)
    assert shown(found(store, job)) == "5"


def test_a_note_of_a_task_with_sensitive_fields_is_refused_and_its_numbers_are_not(store: Store, job: str) -> None:
    private = Effective(task="shop.charge", timing=Timing(lease=3600), sensitive=("card",))

    def body(running: RunningJob) -> Outcome:
        with pytest.raises(ValueError, match=r"^progress: shop\.charge has sensitive fields .* To repair: ") as refused:
            running.progress(1, 10, "card 4111")
        assert "4111" not in str(refused.value)
        running.progress(2, 10)
        return Returned(None)

    assert Node(store, private).run(job, body) == Done(1, told=True)
    assert shown(found(store, job)) == "2 of 10 (20 %)"


def test_what_is_refused_leaves_what_was_said_before(store: Store, job: str) -> None:
    def body(running: RunningJob) -> Outcome:
        running.progress(1, 10)
        with pytest.raises(ValueError, match="11 of 10"):
            running.progress(11, 10)
        return Returned(None)

    Node(store, contract(3600)).run(job, body)
    assert shown(found(store, job)) == "1 of 10 (10 %)"
