"""One outcome a key: who holds a key, for how long, and what the second one is told."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from celery_guard.job.state import Reason, State
from celery_guard.job.verdict import Accepted, Conflict, Duplicate, Granted
from celery_guard.store.protocol import Store

from .builders import NONE, dead, ended, keyed, new_job, recovered, retried, succeeded
from .moves import accept, claim, die, eventually, lapse, publish, start, succeed, take

__all__ = ["TestKeys"]


def _unknown(store: Store, granted: Granted) -> None:
    settlement = dead(granted, state=State.UNKNOWN, reason=None, told=False)
    assert store.settle(settlement)


_HOLDS: dict[str, Callable[[Store, Granted], object]] = {
    "running": lambda store, granted: None,
    "retry": lambda store, granted: store.settle(retried(granted)),
    "unknown": _unknown,
    "succeeded": lambda store, granted: store.settle(succeeded(granted)),
}

_FREES: dict[State, Callable[[Store, Granted], object]] = {
    State.DEAD: lambda store, granted: store.settle(dead(granted)),
    State.CANCELLED: lambda store, granted: store.settle(dead(granted, state=State.CANCELLED, reason=None)),
    State.DROPPED: lambda store, granted: store.settle(dead(granted, state=State.DROPPED)),
}


class TestKeys:
    def test_the_same_key_and_payload_is_a_duplicate(self, store: Store) -> None:
        holder, twin = keyed("order 1"), keyed("order 1")
        accept(store, holder)
        assert store.enqueue([twin]) == [Duplicate(twin.id, holder.id, State.PENDING)]
        assert store.job(twin.id) is None
        assert store.payload(twin.id) is None
        assert store.counts() == {State.PENDING: 1}

    def test_the_same_key_and_another_payload_is_a_conflict(self, store: Store) -> None:
        holder, rival = keyed("order 1"), keyed("order 1", "another amount")
        accept(store, holder)
        assert store.enqueue([rival]) == [Conflict(rival.id, holder.id, State.PENDING)]
        assert store.job(rival.id) is None
        assert store.payload(rival.id) is None

    def test_keys_that_differ_in_case_or_accent_are_different_keys(self, store: Store) -> None:
        names = ["müller", "Müller", "MÜLLER", "muller", "mu\u0308ller", "müller "]
        accept(store, *(keyed(name, name) for name in names))

    def test_jobs_without_a_key_never_meet(self, store: Store) -> None:
        accept(store, *(new_job(fingerprint=keyed("x").fingerprint) for _ in range(5)))

    def test_a_key_said_twice_in_one_batch_is_accepted_once(self, store: Store) -> None:
        first, twin, rival = keyed("order 1"), keyed("order 1"), keyed("order 1", "another amount")
        assert store.enqueue([first, twin, rival]) == [
            Accepted(first.id),
            Duplicate(twin.id, first.id, State.PENDING),
            Conflict(rival.id, first.id, State.PENDING),
        ]

    @pytest.mark.parametrize("how", _HOLDS)
    def test_a_key_is_held_by_a_job_that_is(self, store: Store, how: str) -> None:
        holder = keyed("order 1")
        _HOLDS[how](store, start(store, holder))
        [verdict] = store.enqueue([keyed("order 1")])
        assert isinstance(verdict, Duplicate)
        assert verdict.holder == holder.id

    def test_a_key_is_held_by_a_job_that_was_sent(self, store: Store) -> None:
        holder, twin = keyed("order 1"), keyed("order 1")
        publish(store, holder)
        assert store.enqueue([twin]) == [Duplicate(twin.id, holder.id, State.SENT)]

    def test_a_duplicate_of_a_success_is_led_to_the_stored_outcome(self, store: Store) -> None:
        holder, twin = keyed("order 1"), keyed("order 1")
        granted = succeed(store, holder)
        assert store.enqueue([twin]) == [Duplicate(twin.id, holder.id, State.SUCCEEDED)]
        assert store.outcome(holder.id) == (State.SUCCEEDED, succeeded(granted).result, None)

    @pytest.mark.parametrize("state", _FREES)
    def test_a_key_is_freed_by_an_end_other_than_success(self, store: Store, state: State) -> None:
        _FREES[state](store, start(store, keyed("order 1")))
        assert store.counts() == {state: 1}
        accept(store, keyed("order 1", "another amount"))

    def test_a_key_is_freed_by_cancelling_a_waiting_job(self, store: Store) -> None:
        waiting = keyed("order 1")
        accept(store, waiting)
        store.cancel(waiting.id)
        accept(store, keyed("order 1", "another amount"))

    def test_a_key_is_freed_by_a_relay_that_ends_a_job(self, store: Store) -> None:
        accept(store, keyed("order 1"))
        [row] = take(store, "relay-1")
        assert store.end("relay-1", ended(row))
        accept(store, keyed("order 1", "another amount"))

    def test_a_key_is_freed_by_a_sweep_that_ends_a_job(self, store: Store) -> None:
        _, attempt = lapse(store, keyed("order 1"))
        assert store.recover(attempt, recovered(attempt, state=State.DEAD, reason=Reason.CRASHED, crashed=True))
        accept(store, keyed("order 1", "another amount"))

    def test_a_key_is_freed_when_the_success_that_held_it_is_forgotten(self, store: Store) -> None:
        succeed(store, keyed("order 1"), keep=NONE)
        assert eventually(lambda: store.retain(10)) == 1
        accept(store, keyed("order 1", "another amount"))

    def test_replay_takes_the_key_again(self, store: Store) -> None:
        holder, twin = keyed("order 1"), keyed("order 1")
        die(store, holder)
        assert [answer.answer for answer in store.replay([holder.id])] == ["replayed"]
        assert store.enqueue([twin]) == [Duplicate(twin.id, holder.id, State.PENDING)]

    def test_replay_is_skipped_while_another_job_holds_the_key(self, store: Store) -> None:
        old, fresh = keyed("order 1"), keyed("order 1")
        die(store, old)
        succeed(store, fresh)
        [answer] = store.replay([old.id])
        assert answer.answer == "skipped"
        assert answer.why
        assert store.counts() == {State.DEAD: 1, State.SUCCEEDED: 1}

    def test_of_two_dead_jobs_of_one_key_only_one_is_replayed(self, store: Store) -> None:
        first, second = keyed("order 1"), keyed("order 1")
        die(store, first)
        die(store, second)
        answers = [answer.answer for answer in store.replay([first.id, second.id])]
        assert answers == ["replayed", "skipped"]

    def test_a_replayed_job_that_dies_again_frees_the_key_again(self, store: Store) -> None:
        job = keyed("order 1")
        die(store, job)
        store.replay([job.id])
        assert store.settle(dead(claim(store, job.id)))
        accept(store, keyed("order 1", "another amount"))
