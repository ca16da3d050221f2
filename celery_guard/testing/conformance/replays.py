"""Replays: a frozen set, released in waves at a rate, by whoever drives it, each job once."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import pytest

from celery_guard.job.instant import Instant, instant_to_datetime
from celery_guard.job.replay import SAME_CAUSE, ItemState, NewReplay, Replay, ReplayState
from celery_guard.job.state import Reason, State
from celery_guard.store.protocol import Store

from .builders import LONG, NONE, SOON, dead, failure, keyed, new_id, new_job, retried, succeeded
from .crowd import together
from .moves import accept, claim, die, eventually, found, succeed

__all__ = ["TestReplays", "new_replay"]

_W, _R = ItemState.WAITING, ItemState.RELEASED


def new_replay(**given: Any) -> NewReplay:
    """A replay to be begun, as fast as it goes."""
    values = {
        "id": new_id(), "actor": "ann", "role": "operator", "origin": "here", "reason": "gateway is back", "target": "all", "every": NONE,
    }  # fmt: skip
    return NewReplay(**{**values, **given})


def _begun(store: Store, ids: Sequence[str], **given: Any) -> str:
    """A running replay of these jobs; its id."""
    new = new_replay(**given)
    store.replay_begin(new)
    assert store.replay_add(new.id, ids, 0) == len(ids)
    assert store.replay_move(new.id, [ReplayState.BUILDING], ReplayState.RUNNING)
    return new.id


def _read(store: Store, id: str) -> Replay:
    replay = store.replay_of(id)
    assert replay is not None
    return replay


def _observed(store: Store, id: str) -> dict[ItemState, int]:
    """How many of its jobs are in each state, once what became of them is noted."""
    store.replay_observe(id, 1, 1)
    return dict(_read(store, id).counts)


def _release(store: Store, id: str, wave: int, count: int) -> int:
    """Release jobs at the next turn, once it has come; one that is far away is tried now."""
    turn = _read(store, id).turn
    at = instant_to_datetime(Instant(turn))
    if at - store.clock() < timedelta(minutes=1):
        eventually(lambda: store.clock() >= at)
    return store.replay_release(id, wave, turn, count)


def _dead(store: Store, number: int, **given: Any) -> list[str]:
    return [die(store, new_job(**given)).id for _ in range(number)]


class TestReplays:
    def test_a_replay_says_all_that_it_was_given(self, store: Store) -> None:
        new = new_replay(tenant="acme", every=timedelta(milliseconds=40), cap=3, stop_share=30, same_cause=2)
        store.replay_begin(new)
        store.replay_begin(new)
        replay = _read(store, new.id)
        names = list(NewReplay.__dataclass_fields__)
        assert {name: getattr(replay, name) for name in names} == {name: getattr(new, name) for name in names}
        assert (replay.state, replay.total, replay.wave, replay.run) == (ReplayState.BUILDING, 0, 1, 1)
        assert replay.created.utcoffset() == NONE
        assert [found.id for found in store.replays()] == [new.id]
        assert store.replays(states=[ReplayState.RUNNING]) == []
        assert store.replays(tenant="other") == []
        assert store.replay_of(new_id()) is None

    def test_it_is_known_in_which_replays_a_job_waits(self, store: Store) -> None:
        ids = _dead(store, 2)
        id = _begun(store, ids)
        assert [replay.id for replay in store.replays_with(ids[1])] == [id]
        assert store.replay_move(id, [ReplayState.RUNNING], ReplayState.STOPPED, "why")
        assert [(replay.state, replay.why) for replay in store.replays_with(ids[0])] == [(ReplayState.STOPPED, "why")]
        assert store.replay_move(id, [ReplayState.STOPPED], ReplayState.RUNNING)
        assert _release(store, id, 2, 1) == 1
        assert [len(store.replays_with(one)) for one in ids] == [0, 1]
        assert store.replay_move(id, [ReplayState.RUNNING], ReplayState.ABORTED)
        assert [store.replays_with(one) for one in (*ids, new_id())] == [[], [], []]

    def test_only_dead_jobs_come_into_the_set_each_once(self, store: Store) -> None:
        ids = _dead(store, 2)
        store.replay_begin(new := new_replay())
        assert store.replay_add(new.id, [ids[0], succeed(store).id, new_id(), ids[1], ids[0]], 0) == 2
        assert store.replay_add(new.id, ids, 2) == 0
        assert _read(store, new.id).counts == {_W: 2}
        assert _read(store, new.id).total == 2

    def test_a_set_that_is_frozen_does_not_grow(self, store: Store) -> None:
        id = _begun(store, _dead(store, 1))
        assert store.replay_add(id, _dead(store, 1), 1) == 0
        assert _read(store, id).total == 1

    def test_jobs_are_released_in_their_order_with_the_same_message(self, store: Store) -> None:
        ids = _dead(store, 3)
        id = _begun(store, ids)
        assert _release(store, id, 1, 2) == 2
        assert [found(store, one).state for one in ids] == [State.PENDING, State.PENDING, State.DEAD]
        assert [found(store, one).reason for one in ids[:2]] == [Reason.REPLAY] * 2
        assert _observed(store, id) == {_R: 2, _W: 1}

    def test_those_that_wait_for_a_retry_do_not_hide_who_dies_behind_them(
        self, store: Store, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        # a store looks at so many of them at a time
        room = "redis.operators._BUDGET" if "redis" in type(store).__module__ else "sql.replays._LOOK"
        monkeypatch.setattr(f"celery_guard.store.{room}", 2)
        ids = _dead(store, 4)
        id = _begun(store, ids)
        assert _release(store, id, 1, 2) + _release(store, id, 1, 2) == 4
        for one in ids:
            assert store.settle(retried(claim(store, one), delay=NONE, failure=failure(failure_class="transient")))
        eventually(lambda: _observed(store, id) == {ItemState.FAILING: 4})
        assert store.settle(dead(claim(store, ids[3])))
        seen = [_observed(store, id) for _ in range(3)]
        assert seen[-1] == {ItemState.FAILING: 3, ItemState.FAILED: 1}

    @pytest.mark.parametrize("state", [ReplayState.PAUSED, ReplayState.STOPPED, ReplayState.ABORTED, ReplayState.DONE])
    def test_nothing_is_released_while_it_does_not_run(self, store: Store, state: ReplayState) -> None:
        ids = _dead(store, 1)
        id = _begun(store, ids)
        assert store.replay_move(id, [ReplayState.RUNNING], state, "because")
        assert _release(store, id, 1, 1) == 0
        assert found(store, ids[0]).state is State.DEAD
        replay = _read(store, id)
        assert (replay.state, replay.why) == (state, "because")
        assert (replay.ended is not None) == (state in (ReplayState.ABORTED, ReplayState.DONE))

    def test_nothing_is_released_while_the_set_is_built(self, store: Store) -> None:
        store.replay_begin(new := new_replay())
        store.replay_add(new.id, _dead(store, 1), 0)
        assert _release(store, new.id, 1, 1) == 0

    def test_a_state_is_changed_by_one_and_only_from_what_it_was(self, store: Store) -> None:
        id = _begun(store, _dead(store, 1))
        moved = together(4, lambda _: store.replay_move(id, [ReplayState.RUNNING], ReplayState.PAUSED))
        assert sorted(moved) == [False, False, False, True]
        assert not store.replay_move(new_id(), [ReplayState.RUNNING], ReplayState.PAUSED)
        assert not store.replay_move(id, [ReplayState.PAUSED], ReplayState.RUNNING, wave=7)

    def test_a_replay_that_is_resumed_begins_its_ramp_anew(self, store: Store) -> None:
        id = _begun(store, _dead(store, 1))
        assert store.replay_wave(id, 1)
        assert store.replay_move(id, [ReplayState.RUNNING], ReplayState.STOPPED)
        assert store.replay_move(id, [ReplayState.STOPPED], ReplayState.RUNNING)
        assert (_read(store, id).wave, _read(store, id).run) == (3, 3)

    def test_a_wave_is_left_once(self, store: Store) -> None:
        id = _begun(store, _dead(store, 1))
        assert sorted(together(4, lambda _: store.replay_wave(id, 1))) == [False, False, False, True]
        assert _read(store, id).wave == 2
        assert _release(store, id, 1, 1) == 0

    def test_the_next_release_waits_its_time(self, store: Store) -> None:
        id = _begun(store, _dead(store, 3), every=LONG)
        assert _release(store, id, 1, 1) == 1
        assert _release(store, id, 1, 1) == 0
        assert _observed(store, id) == {_R: 1, _W: 2}

    def test_a_turn_is_taken_once_however_late_the_second_comes(self, store: Store) -> None:
        id = _begun(store, _dead(store, 2))
        assert _release(store, id, 1, 0) == 0
        turn = _read(store, id).turn
        eventually(lambda: store.replay_release(id, 1, turn, 1))
        assert eventually(lambda: _read(store, id).turn != turn)
        assert store.replay_release(id, 1, turn, 1) == 0

    def test_of_many_who_drive_at_once_one_releases_and_no_job_goes_twice(self, store: Store) -> None:
        ids = _dead(store, 6)
        id = _begun(store, ids, every=LONG)
        turn = _read(store, id).turn
        assert sorted(together(4, lambda _: store.replay_release(id, 1, turn, 3))) == [0, 0, 0, 3]
        assert {found(store, one).replays for one in ids} == {0, 1}

    def test_two_replays_of_the_same_jobs_send_each_once(self, store: Store) -> None:
        ids = _dead(store, 4)
        both = [_begun(store, ids), _begun(store, ids)]
        together(2, lambda who: _release(store, both[who], 1, 4))
        assert {found(store, one).replays for one in ids} == {1}
        counts = [_observed(store, id) for id in both]
        assert sum(count.get(_R, 0) for count in counts) == 4
        assert sum(count.get(ItemState.SKIPPED, 0) for count in counts) == 4

    def test_what_cannot_be_sent_again_is_skipped_with_the_reason(self, store: Store) -> None:
        taken, cancelled, fine = die(store, keyed("order 7")).id, die(store).id, die(store).id
        id = _begun(store, [taken, cancelled, fine])
        accept(store, other := keyed("order 7"))
        store.replay([cancelled])
        store.cancel(cancelled)
        assert _release(store, id, 1, 3) == 1
        assert {answer.id: answer.why for answer in store.replay_skipped(id)} == {
            taken: f"its key is held by job {other.id} (pending)",
            cancelled: "it is cancelled, not dead",
        }
        seen = store.replay_observe(id, 1, 1)
        assert seen.wave == {ItemState.SKIPPED: 2, _R: 1}
        assert (seen.released, seen.tried) == (1, False)

    def test_a_tenant_that_has_enough_on_its_way_is_passed_over(self, store: Store) -> None:
        ids = [die(store, new_job(tenant=tenant)).id for tenant in ("acme", "acme", "acme", "other", None, None)]
        id = _begun(store, ids, cap=1)
        assert _release(store, id, 1, 6) == 4
        waits = [job.id for job in store.jobs(states=[State.DEAD])]
        assert sorted(waits) == sorted(ids[1:3])
        assert _release(store, id, 1, 6) == 0
        assert store.settle(succeeded(claim(store, ids[0])))
        store.replay_observe(id, 1, 1)
        assert _release(store, id, 1, 6) == 1

    def test_what_became_of_jobs_is_noted(self, store: Store) -> None:
        good, same, other, tries, gone, stays = (die(store, failure=failure(cause="down")).id for _ in range(6))
        id = _begun(store, [good, same, other, tries, gone, stays])
        assert _release(store, id, 1, 6) == 6
        assert store.settle(succeeded(claim(store, good)))
        assert store.settle(dead(claim(store, same), failure=failure(cause="down")))
        assert store.settle(dead(claim(store, other), failure=failure(cause="new")))
        assert store.settle(retried(claim(store, tries), failure=failure(cause="down")))
        store.cancel(gone)
        seen = store.replay_observe(id, 1, 1)
        assert seen.wave == {
            ItemState.SUCCEEDED: 1, ItemState.FAILED: 2, ItemState.FAILING: 1, ItemState.ENDED: 1, _R: 1,
        }  # fmt: skip
        assert (_read(store, id).counts, seen.same_cause, seen.tried, seen.over) == (seen.wave, 1, False, False)
        assert [(one.id, one.answer, one.why) for one in store.replay_failed(id)] == [
            (tries, "failing", ""), (other, "failed", ""), (same, "failed", SAME_CAUSE),
        ]  # fmt: skip
        assert [one.id for one in store.replay_failed(id, 1)] == [tries]
        again = claim(store, eventually(lambda: [tries][0]))
        assert store.settle(succeeded(again))
        assert _observed(store, id)[ItemState.SUCCEEDED] == 2
        assert store.replay_observe(id, 2, 2).same_cause == 0

    def test_a_look_says_what_waits_what_is_on_its_way_and_what_the_wave_has_come_to(self, store: Store) -> None:
        ids = _dead(store, 4)
        id = _begun(store, ids)
        seen = store.replay_observe(id, 1, 1)
        assert (dict(seen.wave), seen.waiting, seen.on_way, seen.over) == ({}, 4, False, False)
        assert _release(store, id, 1, 2) == 2
        assert store.settle(succeeded(claim(store, ids[0])))
        assert store.replay_wave(id, 1)
        assert _release(store, id, 2, 2) == 2
        seen = store.replay_observe(id, 2, 1)
        assert (dict(seen.wave), seen.waiting, seen.on_way, seen.over) == ({_R: 2}, 0, True, False)
        for one in ids[1:]:
            assert store.settle(succeeded(claim(store, one)))
        seen = store.replay_observe(id, 2, 1)
        assert (dict(seen.wave), seen.waiting, seen.on_way, seen.over) == ({ItemState.SUCCEEDED: 2}, 0, False, True)

    def test_a_job_that_died_again_is_the_same_letter_once_more(self, store: Store) -> None:
        ids = _dead(store, 2)
        id = _begun(store, ids)
        _release(store, id, 1, 2)
        for one in ids:
            assert store.settle(dead(claim(store, one)))
        store.replay_observe(id, 1, 1)
        assert [group.count for group in store.groups()] == [2]
        assert {len(found(store, one).failures) for one in ids} == {2}
        assert _release(store, id, 1, 2) == 0
        [group] = store.groups()
        assert group.replayed is not None

    def test_one_that_somebody_else_replayed_since_is_not_counted_as_this_ones(self, store: Store) -> None:
        [one] = _dead(store, 1)
        id = _begun(store, [one])
        _release(store, id, 1, 1)
        assert store.settle(dead(claim(store, one)))
        store.replay([one])
        assert _observed(store, id) == {ItemState.ENDED: 1}

    def test_a_replay_that_is_over_is_forgotten_bit_by_bit(self, store: Store) -> None:
        id = _begun(store, _dead(store, 3))
        assert store.retain_replays(NONE, 2) == 0
        store.replay_move(id, [ReplayState.RUNNING], ReplayState.ABORTED)
        assert store.retain_replays(LONG, 2) == 0
        gone = 0
        while store.replay_of(id) is not None:
            step = eventually(lambda: store.retain_replays(NONE, 2))
            assert step <= 2
            gone += step
        assert gone == 4

    @pytest.mark.parametrize("state", [ReplayState.PAUSED, ReplayState.STOPPED])
    def test_one_that_nobody_goes_on_with_is_ended_and_forgotten(self, store: Store, state: ReplayState) -> None:
        id, runs = _begun(store, _dead(store, 1)), _begun(store, _dead(store, 1))
        assert store.replay_move(id, [ReplayState.RUNNING], state, "by ann")
        assert store.retain_replays(LONG, 10) == 0
        assert _read(store, id).state is state
        store.retain_replays(NONE, 10)
        eventually(lambda: store.replay_of(id) is None or store.retain_replays(NONE, 10) is None)
        assert _read(store, runs).state is ReplayState.RUNNING

    def test_one_that_was_given_up_says_so_and_does_not_go_on(self, store: Store) -> None:
        id = _begun(store, _dead(store, 1))
        assert store.replay_move(id, [ReplayState.RUNNING], ReplayState.STOPPED, "too many failed")
        eventually(lambda: not store.retain_replays(SOON, 10) and _read(store, id).state is ReplayState.ABORTED)
        assert _read(store, id).why == "too many failed; nobody has gone on with it"
        assert _read(store, id).ended is not None
        assert not store.replay_move(id, [ReplayState.PAUSED, ReplayState.STOPPED], ReplayState.RUNNING)
