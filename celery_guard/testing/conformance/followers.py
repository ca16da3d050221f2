"""Duplicates inside a canvas: rows that wait for the holder of their key and are given its outcome."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from celery_guard.job.row import NewJob
from celery_guard.job.state import Reason, State
from celery_guard.job.verdict import Accepted, Conflict, Duplicate, Granted, NotDue
from celery_guard.store.protocol import Store

from .builders import LONG, NONE, dead, ended, failure, keyed, recovered, result, retried, succeeded
from .moves import accept, claim, die, eventually, found, lapse, start, store_now, succeed, take, taken_ids

__all__ = ["TestFollowers"]


def _follower(**given: Any) -> NewJob:
    return keyed("order 1", in_canvas=True, **given)


def _follow(store: Store, holder: NewJob) -> NewJob:
    follower = _follower()
    assert store.enqueue([follower]) == [Accepted(follower.id, holder=holder.id)]
    return follower


def _met(store: Store, holder: NewJob) -> NewJob:
    """A follower that a relay has met, and left waiting for its holder."""
    follower = _follow(store, holder)
    assert take(store) == []
    return follower


_NOT_OVER: dict[str, Callable[[Store, Granted], object]] = {
    "running": lambda store, granted: None,
    "waiting for a retry": lambda store, granted: store.settle(retried(granted, delay=LONG)),
    "unknown": lambda store, granted: store.settle(dead(granted, state=State.UNKNOWN, reason=None)),
}


class TestFollowers:
    def test_a_duplicate_in_a_canvas_is_written_as_a_follower(self, store: Store) -> None:
        holder = keyed("order 1")
        accept(store, holder)
        follower = _follow(store, holder)
        row = found(store, follower.id)
        assert (row.state, row.reason, row.holder) == (State.PENDING, Reason.HELD_KEY, holder.id)

    def test_the_first_of_a_key_in_a_canvas_is_no_follower(self, store: Store) -> None:
        first = _follower()
        accept(store, first)
        assert found(store, first.id).holder is None
        assert taken_ids(store) == [first.id]

    def test_a_conflict_in_a_canvas_is_still_a_conflict(self, store: Store) -> None:
        holder = keyed("order 1")
        accept(store, holder)
        rival = keyed("order 1", "another amount", in_canvas=True)
        assert store.enqueue([rival]) == [Conflict(rival.id, holder.id, State.PENDING)]
        assert store.job(rival.id) is None

    def test_a_follower_is_a_duplicate_of_itself(self, store: Store) -> None:
        holder = keyed("order 1")
        accept(store, holder)
        follower = _follow(store, holder)
        assert store.enqueue([follower]) == [Duplicate(follower.id, follower.id, State.PENDING)]

    def test_a_holder_and_its_follower_may_come_in_one_batch(self, store: Store) -> None:
        holder, follower = _follower(), _follower()
        assert store.enqueue([holder, follower]) == [Accepted(holder.id), Accepted(follower.id, holder=holder.id)]
        assert taken_ids(store) == [holder.id]

    @pytest.mark.parametrize("how", _NOT_OVER)
    def test_a_follower_waits_while_its_holder_is(self, store: Store, how: str) -> None:
        holder = keyed("order 1")
        granted = start(store, holder)
        follower = _follow(store, holder)
        _NOT_OVER[how](store, granted)
        assert take(store) == []
        assert store.claim(follower.id, "worker-2", LONG) == NotDue(follower.id, Reason.HELD_KEY)

    def test_a_follower_that_no_relay_has_met_is_not_claimed(self, store: Store) -> None:
        holder = keyed("order 1")
        start(store, holder)
        follower = _follow(store, holder)
        assert store.claim(follower.id, "worker-2", LONG) == NotDue(follower.id, Reason.HELD_KEY)

    def test_a_relay_does_not_spin_on_a_follower(self, store: Store) -> None:
        holder = keyed("order 1")
        start(store, holder)
        _follow(store, holder)
        assert take(store) == []
        due = store.next_due()
        assert due is None or due > NONE

    def test_a_follower_is_given_its_holders_result(self, store: Store) -> None:
        holder = keyed("order 1")
        granted = start(store, holder)
        follower = _met(store, holder)
        assert store.settle(succeeded(granted, result=result(b"[1, 2]")))
        [row] = eventually(lambda: take(store))
        assert (row.id, row.holder) == (follower.id, holder.id)
        own = claim(store, follower.id, "worker-2")
        assert own.holder == holder.id
        assert store.outcome(holder.id) == (State.SUCCEEDED, result(b"[1, 2]"), None)
        assert store.settle(succeeded(own, result=result(b"[1, 2]")))
        assert store.outcome(follower.id) == (State.SUCCEEDED, result(b"[1, 2]"), None)

    def test_a_follower_that_no_relay_has_met_is_released_too(self, store: Store) -> None:
        holder = keyed("order 1")
        granted = start(store, holder)
        follower = _follow(store, holder)
        assert store.settle(succeeded(granted))
        assert eventually(lambda: taken_ids(store)) == [follower.id]

    def test_every_follower_of_a_job_is_released(self, store: Store) -> None:
        holder = keyed("order 1")
        granted = start(store, holder)
        followers = [_met(store, holder).id for _ in range(5)]
        assert store.settle(succeeded(granted))
        assert sorted(eventually(lambda: taken_ids(store))) == sorted(followers)

    def test_a_follower_of_a_dead_holder_is_released(self, store: Store) -> None:
        holder = keyed("order 1")
        granted = start(store, holder)
        follower = _met(store, holder)
        assert store.settle(dead(granted))
        [row] = eventually(lambda: take(store))
        assert (row.id, row.holder) == (follower.id, holder.id)
        outcome = store.outcome(holder.id)
        assert outcome is not None
        assert (outcome[0], outcome[2] and outcome[2].message) == (State.DEAD, failure().message)

    def test_a_follower_is_released_when_its_holder_is_cancelled(self, store: Store) -> None:
        holder = keyed("order 1", delay=LONG)
        accept(store, holder)
        follower = _met(store, holder)
        store.cancel(holder.id)
        rows = eventually(lambda: [row for row in take(store) if row.id == follower.id])
        assert [row.holder for row in rows] == [holder.id]

    def test_a_follower_is_released_when_a_relay_ends_its_holder(self, store: Store) -> None:
        holder = keyed("order 1")
        accept(store, holder)
        [row] = take(store, "relay-1")
        follower = _met(store, holder)
        assert store.end("relay-1", ended(row))
        assert eventually(lambda: taken_ids(store)) == [follower.id]

    def test_a_follower_is_released_when_the_sweep_ends_its_holder(self, store: Store) -> None:
        holder = keyed("order 1")
        _, attempt = lapse(store, holder)
        follower = _met(store, holder)
        assert store.recover(attempt, recovered(attempt, state=State.DEAD, reason=Reason.CRASHED))
        assert eventually(lambda: taken_ids(store)) == [follower.id]

    def test_a_follower_of_a_job_that_has_ended_does_not_wait(self, store: Store) -> None:
        holder = keyed("order 1")
        succeed(store, holder)
        follower = _follow(store, holder)
        assert eventually(lambda: taken_ids(store)) == [follower.id]

    def test_a_follower_whose_holder_was_deleted_does_not_wait_for_ever(self, store: Store) -> None:
        holder = keyed("order 1")
        succeed(store, holder, keep=NONE)
        follower = _follow(store, holder)
        over = found(store, holder.id).keep_until
        assert over is not None
        eventually(lambda: store_now(store) > over)
        store.retain(10)
        assert eventually(lambda: taken_ids(store)) == [follower.id]

    def test_a_follower_does_not_hold_the_key(self, store: Store) -> None:
        holder = keyed("order 1")
        granted = start(store, holder)
        _follow(store, holder)
        assert store.settle(dead(granted))
        accept(store, keyed("order 1", "another amount"))

    def test_a_follower_can_be_cancelled(self, store: Store) -> None:
        holder = keyed("order 1")
        start(store, holder)
        follower = _follow(store, holder)
        assert store.cancel(follower.id).answer == "cancelled"
        assert found(store, holder.id).state is State.RUNNING
        assert found(store, holder.id).cancel is False

    def test_a_dead_follower_that_is_replayed_stands_for_itself(self, store: Store) -> None:
        holder = keyed("order 1")
        granted = start(store, holder)
        follower = _met(store, holder)
        assert store.settle(dead(granted))
        assert eventually(lambda: taken_ids(store)) == [follower.id]
        assert store.settle(dead(claim(store, follower.id)))
        assert [answer.answer for answer in store.replay([follower.id])] == ["replayed"]
        assert taken_ids(store) == [follower.id]
        assert claim(store, follower.id).holder is None
        [verdict] = store.enqueue([keyed("order 1")])
        assert isinstance(verdict, Duplicate)
        assert verdict.holder == follower.id

    def test_a_dead_holder_frees_the_key_for_a_job_that_is_no_follower(self, store: Store) -> None:
        die(store, keyed("order 1"))
        fresh = _follower()
        accept(store, fresh)
        assert found(store, fresh.id).holder is None
