"""A connection that is cut in the middle of an operation: the store repeats it, and what was done is not done twice.

Each operation is cut at each of its round trips in turn, once so that the question is lost, and once the answer.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from functools import partial
from typing import Any

import pytest

from celery_guard.job.letter import Edit
from celery_guard.job.row import Attempt, NewJob, Outgoing
from celery_guard.job.state import Reason, State
from celery_guard.job.verdict import Accepted, Granted
from celery_guard.store.protocol import Cancelled, Store
from celery_guard.testing.wire import Wire

from .builders import (
    LONG,
    NONE,
    SOON,
    dead,
    digest,
    failure,
    keyed,
    new_id,
    new_job,
    payload,
    recovered,
    result,
    retried,
    succeeded,
)
from .moves import accept, die, eventually, found, lapse, lease_of, publish, start, succeed, take, taken_ids

__all__ = ["TestCut"]

_Prepare = Callable[[Store], Any]
_Call = Callable[[Store, Any], Any]
_Check = Callable[[Store, Any, Any], object]


@pytest.mark.parametrize("answers", [False, True], ids=["a lost question", "a lost answer"])
class TestCut:
    """``store`` is on a line of its own, ``wired`` is cut."""

    def _everywhere(
        self,
        store: Store,
        wired: tuple[Wire, Store],
        answers: bool,
        prepare: _Prepare,
        call: _Call,
        check: _Check,
        meanwhile: _Call = lambda store, given: None,
    ) -> None:
        wire, cut = wired
        for at in range(1, 30):
            given = prepare(store)
            cut.next_due()
            wire.cut(at, answers=answers, then=partial(meanwhile, store, given))
            said = call(cut, given)
            whole = wire.mend()
            check(store, given, said)
            if whole:
                assert at > 1, "the operation was never cut"
                return
        raise AssertionError("the operation has no end")

    @pytest.mark.parametrize("make", [new_job, lambda: keyed(new_id())], ids=["without a key", "with a key"])
    def test_an_enqueue(self, store: Store, wired: tuple[Wire, Store], answers: bool, make: Callable[[], Any]) -> None:
        def check(store: Store, job: Any, said: Any) -> None:
            assert said == [Accepted(job.id)]
            assert store.payload(job.id) == job.payload
            assert taken_ids(store) == [job.id]

        self._everywhere(store, wired, answers, lambda _: make(), lambda cut, job: cut.enqueue([job]), check)

    def test_an_enqueue_of_many(self, store: Store, wired: tuple[Wire, Store], answers: bool) -> None:
        def check(store: Store, jobs: Any, said: Any) -> None:
            assert said == [Accepted(jobs[0].id), Accepted(jobs[1].id, holder=jobs[0].id)]
            assert taken_ids(store) == [jobs[0].id]

        def prepare(_: Store) -> Any:
            key = new_id()
            return [keyed(key), keyed(key, in_canvas=True)]

        self._everywhere(store, wired, answers, prepare, lambda cut, jobs: cut.enqueue(jobs), check)

    def test_an_id_that_comes_back(self, store: Store, wired: tuple[Wire, Store], answers: bool) -> None:
        """A relay never finds its row without the message that it goes on with."""
        seen: list[Outgoing] = []

        def prepare(store: Store) -> NewJob:
            job = new_job(fingerprint=digest("a call"))
            assert store.settle(
                retried(start(store, job), reason=Reason.HANDED_OVER, delay=LONG, charged=False, retried=False)
            )
            return new_job(id=job.id, payload=payload(b"second"), fingerprint=digest("another call"))

        def check(store: Store, back: NewJob, said: Any) -> None:
            assert said == [Accepted(back.id)]
            seen.extend(take(store))
            assert [(row.id, row.generation, row.payload) for row in seen] == [(back.id, 1, back.payload)] * len(seen)
            assert seen
            seen.clear()

        self._everywhere(
            store, wired, answers, prepare, lambda cut, back: cut.enqueue([back]), check,
            lambda store, back: seen.extend(take(store, hold=NONE)),
        )  # fmt: skip

    def test_a_claim(self, store: Store, wired: tuple[Wire, Store], answers: bool) -> None:
        def prepare(store: Store) -> str:
            job = new_job()
            publish(store, job)
            return job.id

        def check(store: Store, id: str, said: Any) -> None:
            assert isinstance(said, Granted), said
            assert (said.fence, said.attempts) == (1, 1)
            row = found(store, id)
            assert (row.state, row.fence, row.attempts, row.owner) == (State.RUNNING, 1, 1, said.owner)
            assert store.settle(succeeded(said))

        self._everywhere(store, wired, answers, prepare, lambda cut, id: cut.claim(id, "worker-1", LONG), check)

    def test_a_settlement_that_ends(self, store: Store, wired: tuple[Wire, Store], answers: bool) -> None:
        def call(cut: Store, given: tuple[Granted, Any]) -> bool:
            return cut.settle(
                succeeded(given[0], told=False, tell_within=LONG, result=result(b"1"), follow=(given[1],))
            )

        def check(store: Store, given: tuple[Granted, Any], said: bool) -> None:
            assert said is True
            assert store.outcome(given[0].id) == (State.SUCCEEDED, result(b"1"), None)
            assert taken_ids(store) == [given[1].id]

        self._everywhere(store, wired, answers, lambda store: (start(store), new_job()), call, check)

    def test_a_settlement_that_goes_on(self, store: Store, wired: tuple[Wire, Store], answers: bool) -> None:
        def call(cut: Store, granted: Granted) -> bool:
            return cut.settle(retried(granted, failure=failure(), payload=payload(b"second"), charged=False))

        def check(store: Store, granted: Granted, said: bool) -> None:
            assert said is True
            row = found(store, granted.id)
            assert (row.state, row.retries, row.generation, row.attempts, len(row.failures)) == (
                State.PENDING,
                1,
                1,
                0,
                1,
            )
            assert [row.payload for row in take(store)] == [payload(b"second")]

        self._everywhere(store, wired, answers, start, call, check)

    def test_a_settlement_by_nobody(self, store: Store, wired: tuple[Wire, Store], answers: bool) -> None:
        def prepare(store: Store) -> Granted:
            stale = start(store)
            assert store.settle(retried(stale))
            assert isinstance(store.claim(stale.id, "worker-2", LONG), Granted)
            return stale

        def check(store: Store, stale: Granted, said: bool) -> None:
            assert said is False
            row = found(store, stale.id)
            assert (row.state, row.fence, row.failures) == (State.RUNNING, stale.fence + 1, ())

        self._everywhere(store, wired, answers, prepare, lambda cut, stale: cut.settle(dead(stale)), check)

    def test_a_renewal(self, store: Store, wired: tuple[Wire, Store], answers: bool) -> None:
        def check(store: Store, granted: Granted, said: Any) -> None:
            assert [renewal.id for renewal in said] == [granted.id]

        self._everywhere(store, wired, answers, start, lambda cut, granted: cut.renew([lease_of(granted)], LONG), check)

    def test_a_word_that_celery_was_told(self, store: Store, wired: tuple[Wire, Store], answers: bool) -> None:
        def check(store: Store, granted: Granted, said: None) -> None:
            assert found(store, granted.id).told is True

        self._everywhere(
            store,
            wired,
            answers,
            lambda store: succeed(store, told=False),
            lambda cut, granted: cut.told([(granted.id, granted.fence)]),
            check,
        )

    def test_a_note(self, store: Store, wired: tuple[Wire, Store], answers: bool) -> None:
        def check(store: Store, granted: Granted, said: None) -> None:
            assert len(found(store, granted.id).failures) == 1

        self._everywhere(store, wired, answers, start, lambda cut, granted: cut.note(granted.id, failure()), check)

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

    def test_a_cancel(self, store: Store, wired: tuple[Wire, Store], answers: bool) -> None:
        def check(store: Store, granted: Granted, said: Any) -> None:
            assert said.answer == "asked"
            assert found(store, granted.id).cancel is True

        self._everywhere(store, wired, answers, start, lambda cut, granted: cut.cancel(granted.id), check)

    def test_a_cancel_of_what_waits(self, store: Store, wired: tuple[Wire, Store], answers: bool) -> None:
        def prepare(store: Store) -> str:
            job = new_job()
            accept(store, job)
            return job.id

        def check(store: Store, id: str, said: Any) -> None:
            assert said == Cancelled(id, "cancelled", State.CANCELLED)
            assert found(store, id).state is State.CANCELLED

        self._everywhere(store, wired, answers, prepare, lambda cut, id: cut.cancel(id), check)

    def test_a_replay(self, store: Store, wired: tuple[Wire, Store], answers: bool) -> None:
        def check(store: Store, granted: Granted, said: Any) -> None:
            assert [one.answer for one in said] == ["replayed"]
            row = found(store, granted.id)
            assert (row.state, row.replays) == (State.PENDING, 1)

        self._everywhere(store, wired, answers, die, lambda cut, granted: cut.replay([granted.id]), check)

    def test_an_edited_replay(self, store: Store, wired: tuple[Wire, Store], answers: bool) -> None:
        def check(store: Store, granted: Granted, said: Any) -> None:
            assert said.answer == "replayed"
            row = found(store, granted.id)
            assert (row.state, row.replays, row.generation) == (State.PENDING, 1, 1)
            assert store.payload(granted.id) == payload(b"second")

        def call(cut: Store, granted: Granted) -> Any:
            return cut.replay_edited(Edit(granted.id, 0, payload(b"second"), None))

        self._everywhere(store, wired, answers, die, call, check)

    def test_a_retention(self, store: Store, wired: tuple[Wire, Store], answers: bool) -> None:
        def check(store: Store, granted: Granted, said: int) -> None:
            # The server may hold the row for the lost connection a little longer, and retention passes by what is held.
            eventually(lambda: store.retain(10) or store.job(granted.id) is None)
            assert (store.job(granted.id), store.payload(granted.id), store.counts()) == (None, None, {})

        self._everywhere(
            store, wired, answers, lambda store: succeed(store, keep=NONE), lambda cut, _: cut.retain(10), check
        )

    def test_a_message_put_into_quarantine(self, store: Store, wired: tuple[Wire, Store], answers: bool) -> None:
        def call(cut: Store, name: str) -> int:
            return cut.quarantine(
                queue=name, body=b"\xff", headers="{}", content_type="x", content_encoding="y", reason="z"
            )

        def check(store: Store, name: str, number: int) -> None:
            assert [message.id for message in store.quarantined() if message.queue == name] == [number]

        self._everywhere(store, wired, answers, lambda _: new_id(), call, check)

    def test_a_slot(self, store: Store, wired: tuple[Wire, Store], answers: bool) -> None:
        def check(store: Store, name: str, said: bool) -> None:
            assert said is True
            assert store.hold(name, "two", LONG) is False

        self._everywhere(
            store, wired, answers, lambda _: new_id(), lambda cut, name: cut.hold(name, "one", LONG), check
        )


def _recover(store: Store, attempt: Attempt, delay: timedelta = LONG) -> bool:
    return store.recover(attempt, recovered(attempt, crashed=True, delay=delay, failure=failure()))


def _taken(store: Store) -> str:
    """A job that is taken by a relay whose token is the job's id."""
    job = new_job()
    accept(store, job)
    assert taken_ids(store, token=job.id) == [job.id]
    return job.id
