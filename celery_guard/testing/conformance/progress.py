"""What attempts say of how far they are: written with a renewal or an end, by nobody but the owner, and gone with the next attempt."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

import pytest

from celery_guard.job.letter import Edit
from celery_guard.job.progress import Progress, progress_text
from celery_guard.job.settlement import Settlement
from celery_guard.job.state import State
from celery_guard.store.protocol import Store

from .builders import LONG, NONE, SOON, dead, new_id, new_job, payload, recovered, retried, succeeded
from .moves import accept, claim, die, found, lease_of, lose, row_of, start

__all__ = ["TestProgress"]

_AFTER = timedelta(seconds=12.5)


def _said(done: float, note: str = "") -> str:
    return progress_text(done, 100, note, _AFTER)


def _done(store: Store, id: str) -> float | None:
    progress = found(store, id).progress
    return None if progress is None else progress.done


class TestProgress:
    def test_nothing_is_said_by_itself(self, store: Store) -> None:
        granted = start(store)
        assert store.renew([lease_of(granted)], LONG)
        assert found(store, granted.id).progress is None

    def test_it_is_written_with_the_renewal_and_dated_by_the_stores_clock(self, store: Store) -> None:
        granted = start(store)
        said = progress_text(41.5, None, "Größe \N{SNOWMAN} 'x' \\ %s :y", _AFTER)
        assert len(store.renew([lease_of(granted)], LONG, {lease_of(granted): said})) == 1
        row = found(store, granted.id)
        assert row.started is not None
        assert row.progress == Progress(41.5, None, "Größe \N{SNOWMAN} 'x' \\ %s :y", row.started + _AFTER)
        assert [job.progress for job in store.jobs()] == [row.progress]

    def test_many_are_written_at_once_each_its_own(self, store: Store) -> None:
        jobs = [new_job() for _ in range(200)]
        accept(store, *jobs)
        leases = [lease_of(claim(store, job.id)) for job in jobs]
        said = {lease: _said(number / 4, "x" * 200) for number, lease in enumerate(leases) if number % 2}
        assert len(store.renew(iter(leases), LONG, said)) == len(jobs)
        expected = {job.id: number / 4 if number % 2 else None for number, job in enumerate(jobs)}
        assert {job.id: job.progress and job.progress.done for job in store.jobs(limit=len(jobs))} == expected

    def test_the_newest_takes_the_place_of_the_one_before_and_stays(self, store: Store) -> None:
        granted = start(store)
        for done in (3, 1):
            store.renew([lease_of(granted)], LONG, {lease_of(granted): _said(done)})
        store.renew([lease_of(granted)], LONG)
        assert _done(store, granted.id) == 1

    def test_what_somebody_says_who_is_not_the_owner_is_not_written(self, store: Store) -> None:
        granted = start(store)
        for stranger in (
            (granted.id, granted.fence, "worker-2"),
            (granted.id, granted.fence - 1, granted.owner),
            (new_id(), granted.fence, granted.owner),
        ):
            assert store.renew([stranger], LONG, {stranger: _said(9)}) == []
            # nor beside the owner's
            assert len(store.renew([stranger, lease_of(granted)], LONG, {stranger: _said(9)})) == 1
        assert _done(store, granted.id) is None

    def test_an_old_attempt_does_not_speak_for_the_new_one(self, store: Store) -> None:
        """Both may be one process's, which does not know yet that it has lost the first."""
        old = lease_of(lose(store))
        new = lease_of(claim(store, old[0]))
        for said in ({old: _said(90), new: _said(5)}, {new: _said(6), old: _said(90)}, {old: _said(90)}):
            assert [one.fence for one in store.renew([old, new], LONG, said)] == [new[1]]
        assert _done(store, old[0]) == 6

    @pytest.mark.parametrize("end", [succeeded, dead, retried])
    def test_it_is_written_with_the_end_and_stays_as_it_was_where_the_end_says_nothing(
        self, store: Store, end: Callable[..., Settlement]
    ) -> None:
        for last, expected in ((_said(100), 100), (None, 40)):
            granted = start(store)
            store.renew([lease_of(granted)], LONG, {lease_of(granted): _said(40)})
            assert store.settle(end(granted, progress=last))
            assert _done(store, granted.id) == expected

    def test_a_renewal_that_comes_after_the_end_changes_nothing(self, store: Store) -> None:
        granted = start(store)
        assert store.settle(succeeded(granted, progress=_said(100)))
        assert store.renew([lease_of(granted)], LONG, {lease_of(granted): _said(99)}) == []
        assert _done(store, granted.id) == 100

    def test_an_end_that_is_refused_says_nothing(self, store: Store) -> None:
        old = lose(store)
        new = claim(store, old.id)
        assert store.settle(succeeded(old, progress=_said(100))) is False
        assert _done(store, new.id) is None

    def test_a_late_end_that_nobody_contests_is_heard(self, store: Store) -> None:
        granted = lose(store)
        assert store.settle(succeeded(granted, progress=_said(100)))
        assert _done(store, granted.id) == 100

    def test_it_is_read_until_the_next_attempt_and_that_starts_without(self, store: Store) -> None:
        granted = start(store)
        assert store.settle(retried(granted, progress=_said(40)))
        assert (found(store, granted.id).state, _done(store, granted.id)) == (State.PENDING, 40)
        claim(store, granted.id)
        assert _done(store, granted.id) is None

    def test_an_attempt_that_was_lost_leaves_how_far_it_was(self, store: Store) -> None:
        granted = start(store)
        assert store.renew([lease_of(granted)], SOON, {lease_of(granted): _said(40)})
        attempt = row_of(granted.id, lambda: store.lapsed(1000))
        assert store.recover(attempt, recovered(attempt, delay=NONE, crashed=True))
        assert (found(store, granted.id).state, _done(store, granted.id)) == (State.PENDING, 40)
        claim(store, granted.id)
        assert _done(store, granted.id) is None

    def test_a_replay_starts_without(self, store: Store) -> None:
        granted = die(store, progress=_said(40))
        store.replay([granted.id])
        assert _done(store, granted.id) is None

    def test_a_replay_of_an_edited_message_starts_without(self, store: Store) -> None:
        granted = die(store, progress=_said(40))
        assert store.replay_edited(Edit(granted.id, 0, payload(b"corrected"), None)).answer == "replayed"
        assert _done(store, granted.id) is None
