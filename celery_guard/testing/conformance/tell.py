"""How Celery is told an outcome: once by the attempt that moved the row, and again, by one delivery, if that was lost."""

from __future__ import annotations

from datetime import timedelta

import pytest

from celery_guard.job.state import State
from celery_guard.job.verdict import Granted, Settled
from celery_guard.store.protocol import Store

from .builders import LONG, NONE, SOON, dead, failure, new_job, result, succeeded
from .crowd import together
from .moves import accept, eventually, found, lose, start, take, taken_ids

__all__ = ["TestTell"]


def _untold(store: Store) -> Granted:
    """A success that Celery was not told about in time."""
    granted = start(store)
    assert store.settle(succeeded(granted, told=False, tell_within=NONE))
    return granted


def _published(store: Store, granted: Granted) -> None:
    """Have the outcome published to be told."""
    assert eventually(lambda: taken_ids(store, token="relay-1")) == [granted.id]
    assert store.sent("relay-1", [granted.id], LONG) == 1


def _told(store: Store, granted: Granted, lease: timedelta = LONG) -> bool:
    verdict = store.claim(granted.id, "worker-2", lease)
    assert isinstance(verdict, Settled), verdict
    return verdict.tell


class TestTell:
    def test_an_outcome_nobody_told_is_taken_to_be_told(self, store: Store) -> None:
        granted = _untold(store)
        [row] = eventually(lambda: take(store))
        assert (row.id, row.state, row.fence) == (granted.id, State.SUCCEEDED, granted.fence)
        assert row.payload == new_job().payload

    def test_the_settler_is_given_time_to_tell(self, store: Store) -> None:
        granted = start(store)
        assert store.settle(succeeded(granted, told=False, tell_within=LONG))
        assert take(store) == []
        assert _told(store, granted) is False

    def test_the_settlers_time_to_tell_ends(self, store: Store) -> None:
        granted = start(store)
        assert store.settle(succeeded(granted, told=False, tell_within=SOON))
        assert eventually(lambda: taken_ids(store)) == [granted.id]

    def test_what_was_told_is_not_told_again(self, store: Store) -> None:
        granted = _untold(store)
        store.told([(granted.id, granted.fence)])
        assert take(store) == []
        assert store.next_due() is None
        row = found(store, granted.id)
        assert (row.told, row.due) == (True, None)
        assert _told(store, granted) is False

    def test_what_was_told_while_it_was_published_is_not_told_again(self, store: Store) -> None:
        granted = _untold(store)
        assert eventually(lambda: taken_ids(store, token="relay-1"))
        store.told([(granted.id, granted.fence)])
        store.sent("relay-1", [granted.id], NONE)
        assert _told(store, granted) is False
        assert take(store) == []

    def test_many_are_told_at_once(self, store: Store) -> None:
        ended = [_untold(store) for _ in range(50)]
        store.told((granted.id, granted.fence) for granted in ended)
        store.told([])
        assert take(store) == []

    def test_an_attempt_of_another_fence_cannot_say_it_was_told(self, store: Store) -> None:
        granted = _untold(store)
        store.told([(granted.id, granted.fence - 1), (granted.id, granted.fence + 1)])
        assert found(store, granted.id).told is False
        assert eventually(lambda: taken_ids(store)) == [granted.id]

    def test_what_still_runs_is_not_marked_as_told(self, store: Store) -> None:
        granted = start(store, lease=SOON)
        store.told([(granted.id, granted.fence)])
        assert [row.id for row in eventually(lambda: store.lapsed(10))] == [granted.id]
        assert store.settle(succeeded(granted, told=False, tell_within=NONE))
        assert eventually(lambda: taken_ids(store)) == [granted.id]

    def test_a_delivery_that_was_not_published_to_tell_does_not_tell(self, store: Store) -> None:
        granted = _untold(store)
        assert _told(store, granted) is False

    def test_exactly_one_delivery_tells(self, store: Store) -> None:
        granted = _untold(store)
        _published(store, granted)
        assert [_told(store, granted) for _ in range(3)] == [True, False, False]

    def test_a_delivery_faster_than_the_relays_mark_tells(self, store: Store) -> None:
        granted = _untold(store)
        assert eventually(lambda: taken_ids(store, token="relay-1"))
        assert _told(store, granted) is True
        store.sent("relay-1", [granted.id], LONG)
        assert found(store, granted.id).state is State.SUCCEEDED

    def test_of_many_deliveries_exactly_one_tells(self, store: Store) -> None:
        for _ in range(5):
            granted = _untold(store)
            _published(store, granted)
            assert together(8, lambda _, g=granted: _told(store, g)).count(True) == 1  # type: ignore[misc]

    def test_the_delivery_that_tells_is_handed_the_result(self, store: Store) -> None:
        granted = _untold(store)
        _published(store, granted)
        assert store.claim(granted.id, "worker-2", LONG) == Settled(
            granted.id, State.SUCCEEDED, None, tell=True, result=result(), fence=granted.fence
        )

    def test_the_delivery_that_tells_is_handed_the_failure(self, store: Store) -> None:
        granted = start(store)
        assert store.settle(dead(granted, failure=failure("no funds"), told=False, tell_within=NONE))
        _published(store, granted)
        verdict = store.claim(granted.id, "worker-2", LONG)
        assert isinstance(verdict, Settled)
        assert (verdict.state, verdict.tell) == (State.DEAD, True)
        assert verdict.failure is not None
        assert verdict.failure.message == "no funds"

    def test_a_message_sent_before_the_end_does_not_tell(self, store: Store) -> None:
        granted = lose(store)
        assert taken_ids(store, token="relay-1") == [granted.id]
        assert store.settle(succeeded(granted, told=False, tell_within=LONG))
        assert store.sent("relay-1", [granted.id], NONE) == 0
        assert _told(store, granted) is False
        assert take(store) == []

    def test_who_was_to_tell_and_did_not_is_followed_by_another(self, store: Store) -> None:
        granted = _untold(store)
        for token in ("relay-1", "relay-2", "relay-3"):
            assert eventually(lambda token=token: taken_ids(store, token=token)) == [granted.id]  # type: ignore[misc]
            assert store.sent(token, [granted.id], SOON) == 1
            assert [_told(store, granted, SOON), _told(store, granted, SOON)] == [True, False]
        store.told([(granted.id, granted.fence)])
        assert take(store) == []

    def test_who_is_to_tell_has_a_leases_time_though_its_message_came_late(self, store: Store) -> None:
        granted = _untold(store)
        assert eventually(lambda: taken_ids(store, token="relay-1")) == [granted.id]
        assert store.sent("relay-1", [granted.id], NONE) == 1
        # due again already, and no relay has looked yet
        assert _told(store, granted) is True
        assert take(store) == []

    def test_a_relay_that_dies_before_it_published_is_followed_by_another(self, store: Store) -> None:
        granted = _untold(store)
        assert eventually(lambda: taken_ids(store, token="relay-1", hold=SOON)) == [granted.id]
        assert eventually(lambda: taken_ids(store, token="relay-2")) == [granted.id]

    def test_a_waiting_job_that_a_person_cancelled_is_told(self, store: Store) -> None:
        job = new_job(delay=LONG)
        accept(store, job)
        store.cancel(job.id)
        [row] = eventually(lambda: take(store))
        assert (row.id, row.state) == (job.id, State.CANCELLED)

    @pytest.mark.parametrize("state", [State.DEAD, State.CANCELLED, State.DROPPED])
    def test_every_end_is_told(self, store: Store, state: State) -> None:
        granted = start(store)
        assert store.settle(dead(granted, state=state, told=False, tell_within=NONE))
        [row] = eventually(lambda: take(store))
        assert (row.id, row.state) == (granted.id, state)

    def test_a_job_of_unknown_outcome_is_not_told(self, store: Store) -> None:
        granted = start(store)
        assert store.settle(dead(granted, state=State.UNKNOWN, reason=None, told=False, tell_within=NONE))
        assert take(store) == []
