"""What relays and the sweep ask of a store, with the connection cut in the middle: a row is moved and counted once."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from celery_guard.job.row import Attempt, NewJob, Outgoing
from celery_guard.job.settlement import Settlement
from celery_guard.job.state import Kind, Reason, State
from celery_guard.job.verdict import Accepted, Granted
from celery_guard.store.protocol import Store
from celery_guard.testing.wire import Wire

from .builders import LONG, NONE, SOON, ended, failure, keyed, new_id, new_job, recovered, succeeded
from .cuts import Cuts, lost
from .moves import accept, die, eventually, found, lapse, start, succeed, suspect, take, taken_ids

__all__ = ["TestRelayCut"]


@lost
class TestRelayCut(Cuts):
    def test_a_take(self, store: Store, wired: tuple[Wire, Store], answers: bool) -> None:
        def prepare(store: Store) -> str:
            job = new_job()
            accept(store, job)
            return job.id

        def check(store: Store, id: str, said: Any) -> None:
            assert [row.id for row in said] in ([id], [])
            assert eventually(lambda: taken_ids(store)) == [id]

        self._everywhere(store, wired, answers, prepare, lambda cut, _: cut.take(new_id(), 10, SOON), check)

    def test_a_relays_mark(self, store: Store, wired: tuple[Wire, Store], answers: bool) -> None:
        def check(store: Store, token: str, said: int) -> None:
            row = found(store, token)
            assert (row.state, row.publications) == (State.SENT, 1)

        self._everywhere(store, wired, answers, _taken, lambda cut, token: cut.sent(token, [token], LONG), check)

    def test_a_relays_mark_on_a_message_that_only_travels(
        self, store: Store, wired: tuple[Wire, Store], answers: bool
    ) -> None:
        def check(store: Store, token: str, said: int) -> None:
            row = found(store, token)
            assert (row.state, row.told) == (State.SUCCEEDED, True)

        self._everywhere(
            store, wired, answers, lambda store: _taken(store, kind=Kind.CARRIED),
            lambda cut, token: cut.sent(token, [token], LONG), check,
        )  # fmt: skip

    def test_a_take_where_a_follower_has_to_wait(self, store: Store, wired: tuple[Wire, Store], answers: bool) -> None:
        def prepare(store: Store) -> tuple[Granted, NewJob]:
            holder = keyed(new_id())
            granted, follower = (
                start(store, holder),
                new_job(key=holder.key, fingerprint=holder.fingerprint, in_canvas=True),
            )
            assert store.enqueue([follower]) == [Accepted(follower.id, holder.id)]
            return granted, follower

        def check(store: Store, given: tuple[Granted, NewJob], said: Any) -> None:
            assert said == []
            assert store.settle(succeeded(given[0]))
            assert taken_ids(store) == [given[1].id]

        self._everywhere(store, wired, answers, prepare, lambda cut, _: cut.take(new_id(), 10, SOON), check)

    @pytest.mark.parametrize("end", [ended, lambda row: ended(row, failure=None)], ids=["with a failure", "without"])
    def test_an_end_by_a_relay(
        self, store: Store, wired: tuple[Wire, Store], answers: bool, end: Callable[[Any], Settlement]
    ) -> None:
        def prepare(store: Store) -> Outgoing:
            accept(store, job := new_job())
            [row] = take(store, token=job.id)
            return row

        def check(store: Store, row: Outgoing, said: bool) -> None:
            assert said is True
            job = found(store, row.id)
            assert (job.state, job.reason, len(job.failures)) == (
                State.DEAD,
                Reason.UNPUBLISHABLE,
                end(row).failure is not None,
            )

        self._everywhere(store, wired, answers, prepare, lambda cut, row: cut.end(row.id, end(row)), check)

    def test_a_row_given_back(self, store: Store, wired: tuple[Wire, Store], answers: bool) -> None:
        def check(store: Store, token: str, said: int) -> None:
            assert found(store, token).refusals == 1

        self._everywhere(
            store, wired, answers, _taken, lambda cut, token: cut.postpone(token, [(token, LONG)], refused=True), check
        )

    def test_a_recovery(self, store: Store, wired: tuple[Wire, Store], answers: bool) -> None:
        def check(store: Store, attempt: Attempt, said: bool) -> None:
            assert said is True
            row = found(store, attempt.id)
            assert (row.state, row.crashes, len(row.failures)) == (State.PENDING, 1, 1)

        self._everywhere(store, wired, answers, lambda store: lapse(store)[1], _recover, check)

    def test_a_recovery_that_another_sweep_has_made(
        self, store: Store, wired: tuple[Wire, Store], answers: bool
    ) -> None:
        """The row is as this sweep would have left it, and yet it was not this one."""

        def prepare(store: Store) -> Attempt:
            attempt = lapse(store)[1]
            assert _recover(store, attempt) is True
            return attempt

        def check(store: Store, attempt: Attempt, said: bool) -> None:
            assert said is False
            row = found(store, attempt.id)
            assert (row.state, row.crashes, len(row.failures)) == (State.PENDING, 1, 1)

        self._everywhere(store, wired, answers, prepare, _recover, check)

    def test_a_recovery_after_which_the_job_has_moved_on(
        self, store: Store, wired: tuple[Wire, Store], answers: bool
    ) -> None:
        """The row does not show it any more, and yet it was this sweep."""

        def meanwhile(store: Store, attempt: Attempt) -> None:
            verdict = store.claim(attempt.id, "worker-2", LONG)
            assert not isinstance(verdict, Granted) or store.settle(succeeded(verdict))

        def check(store: Store, attempt: Attempt, said: bool) -> None:
            assert said is True
            assert (found(store, attempt.id).crashes, len(found(store, attempt.id).failures)) == (1, 1)

        self._everywhere(
            store,
            wired,
            answers,
            lambda store: lapse(store)[1],
            lambda cut, attempt: _recover(cut, attempt, NONE),
            check,
            meanwhile,
        )

    def test_a_look_at_suspects_that_is_put_off(self, store: Store, wired: tuple[Wire, Store], answers: bool) -> None:
        def check(store: Store, attempt: Attempt, said: int) -> None:
            assert store.suspects(10) == []
            assert found(store, attempt.id).state is State.SENT

        self._everywhere(store, wired, answers, suspect, lambda cut, attempt: cut.defer([attempt], LONG), check)

    def test_an_adding_up(self, store: Store, wired: tuple[Wire, Store], answers: bool) -> None:
        """Nothing that is read changes by it."""
        self._everywhere(
            store, wired, answers, die, lambda cut, _: (cut.fold(10), cut.next_due()), lambda store, granted, said: None
        )

    def test_a_retention(self, store: Store, wired: tuple[Wire, Store], answers: bool) -> None:
        def check(store: Store, granted: Granted, said: int) -> None:
            # The server may hold the row for the lost connection a little longer, and retention passes by what is held.
            eventually(lambda: store.retain(10) or store.job(granted.id) is None)
            assert (store.job(granted.id), store.payload(granted.id), store.counts()) == (None, None, {})

        self._everywhere(
            store, wired, answers, lambda store: succeed(store, keep=NONE), lambda cut, _: cut.retain(10), check
        )


def _recover(store: Store, attempt: Attempt, delay: timedelta = LONG) -> bool:
    return store.recover(attempt, recovered(attempt, crashed=True, delay=delay, failure=failure()))


def _taken(store: Store, **given: Any) -> str:
    """A job that is taken by a relay whose token is the job's id."""
    job = new_job(**given)
    accept(store, job)
    assert taken_ids(store, token=job.id) == [job.id]
    return job.id
