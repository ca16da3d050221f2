"""What senders, workers, relays and the sweep ask of a store, with the connection cut in the middle: it is repeated, and what was done is not done twice.

What people ask is in :mod:`.cut_people`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from celery_guard.job.row import NewJob, Outgoing
from celery_guard.job.settlement import Settlement
from celery_guard.job.state import Reason, State
from celery_guard.job.verdict import Accepted, Conflict, Duplicate, Enqueued, Granted, Settled
from celery_guard.store import calls
from celery_guard.store.protocol import Store
from celery_guard.testing.wire import Wire

from . import builders
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
    result,
    retried,
    succeeded,
)
from .cuts import Cuts, lost
from .moves import (
    accept,
    eventually,
    found,
    lease_of,
    publish,
    start,
    succeed,
    take,
    taken_ids,
)  # fmt: skip

__all__ = ["TestCut"]


def _like(holder: NewJob, **given: Any) -> NewJob:
    return new_job(**{"key": holder.key, "fingerprint": holder.fingerprint, **given})


_ANSWERS: dict[str, Callable[[str, str], Enqueued]] = {
    "new": lambda id, holder: Accepted(id),
    "follows": Accepted,
    "follows the first": Accepted,
    "the same": lambda id, holder: Duplicate(id, holder, State.RUNNING),
    "another": lambda id, holder: Conflict(id, holder, State.RUNNING),
}

#: Jobs that are enqueued while another one runs, and the answers.
_SHAPES: dict[str, tuple[Callable[[NewJob], list[NewJob]], tuple[str, ...]]] = {
    "without a key": (lambda holder: [new_job()], ("new",)),
    "with a key": (lambda holder: [keyed(new_id())], ("new",)),
    "in the broker": (lambda holder: [new_job(in_broker=LONG)], ("new",)),
    "a conflict": (lambda holder: [_like(holder, fingerprint=digest("another call"))], ("another",)),
    "a follower": (lambda holder: [_like(holder, in_canvas=True)], ("follows",)),
    "many": (
        lambda holder: [first := keyed(new_id()), _like(first, in_canvas=True), _like(holder)],
        ("new", "follows the first", "the same"),
    ),
}

_ENDS: dict[str, Callable[[Granted], Settlement]] = {
    "succeeded": lambda granted: succeeded(granted, result=None, interrupted=False),
    "dead": dead,
    "cancelled": lambda granted: dead(granted, state=State.CANCELLED, reason=None, failure=None),
    "unknown": lambda granted: dead(granted, state=State.UNKNOWN, reason=None),
    "handed over": builders.handed_over,
}


@lost
class TestCut(Cuts):
    @pytest.mark.parametrize("shape", _SHAPES)
    def test_an_enqueue(self, store: Store, wired: tuple[Wire, Store], answers: bool, shape: str) -> None:
        make, words = _SHAPES[shape]

        def prepare(store: Store) -> tuple[NewJob, list[NewJob]]:
            holder = keyed(new_id())
            start(store, holder)
            return holder, make(holder)

        def check(store: Store, given: tuple[NewJob, list[NewJob]], said: Any) -> None:
            holder, jobs = given
            assert said == [
                _ANSWERS[word](job.id, jobs[0].id if word == "follows the first" else holder.id)
                for job, word in zip(jobs, words, strict=True)
            ]
            written = [job for job, word in zip(jobs, words, strict=True) if word not in ("the same", "another")]
            assert [store.payload(job.id) for job in written] == [job.payload for job in written]
            free = [job.id for job, word in zip(jobs, words, strict=True) if word == "new" and job.in_broker is None]
            assert sorted(taken_ids(store)) == sorted(free)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(calls, "BATCH", 1)
            self._everywhere(store, wired, answers, prepare, lambda cut, given: cut.enqueue(given[1]), check)

    @pytest.mark.parametrize("handed_over", [False, True], ids=["has died", "was handed over"])
    def test_an_enqueue_of_a_job_that_meanwhile(
        self, store: Store, wired: tuple[Wire, Store], answers: bool, handed_over: bool
    ) -> None:
        """It ran before its sender asked again, who is told the same and has it run no second time."""
        seen: set[str] = set()

        def meanwhile(store: Store, job: NewJob) -> None:
            granted = store.claim(job.id, "worker-1", LONG)
            if isinstance(granted, Granted):
                seen.add(job.id)
                assert store.settle(builders.handed_over(granted) if handed_over else dead(granted))
                if not handed_over:
                    accept(store, new_job(key=job.key, fingerprint=digest("another call"), delay=LONG))

        def check(store: Store, job: NewJob, said: Any) -> None:
            assert said == [Accepted(job.id)]
            if job.id not in seen:
                meanwhile(store, job)
            row = found(store, job.id)
            assert (row.state, row.generation) == (State.PENDING if handed_over else State.DEAD, 0)

        self._everywhere(
            store, wired, answers, lambda _: new_job() if handed_over else keyed(new_id()),
            lambda cut, job: cut.enqueue([job]), check, meanwhile,
        )  # fmt: skip

    def test_an_id_that_comes_back(self, store: Store, wired: tuple[Wire, Store], answers: bool) -> None:
        """A relay never finds its row without the message that it goes on with."""
        seen: list[Outgoing] = []

        def prepare(store: Store) -> NewJob:
            job = new_job(fingerprint=digest("a call"))
            assert store.settle(builders.handed_over(start(store, job)))
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

    @pytest.mark.parametrize("end", _ENDS)
    def test_a_settlement(self, store: Store, wired: tuple[Wire, Store], answers: bool, end: str) -> None:
        def check(store: Store, granted: Granted, said: bool) -> None:
            settlement = _ENDS[end](granted)
            assert said is True
            row = found(store, granted.id)
            assert (row.state, row.reason, row.attempts) == (settlement.state, settlement.reason, settlement.charged)
            assert len(row.failures) == (settlement.failure is not None)

        self._everywhere(
            store, wired, answers, lambda store: start(store, keyed(new_id())),
            lambda cut, granted: cut.settle(_ENDS[end](granted)), check,
        )  # fmt: skip

    @pytest.mark.parametrize("unknown", [False, True], ids=["by its attempt", "by a person"])
    def test_a_settlement_after_which_the_job_has_moved_on(
        self, store: Store, wired: tuple[Wire, Store], answers: bool, unknown: bool
    ) -> None:
        def prepare(store: Store) -> Granted:
            granted = start(store)
            assert not unknown or store.settle(dead(granted, state=State.UNKNOWN))
            return granted

        def call(cut: Store, granted: Granted) -> bool:
            again = retried(granted, reason=Reason.INTERRUPTED, retried=False)
            return cut.settle_unknown(again) if unknown else cut.settle(again)

        def check(store: Store, granted: Granted, said: bool) -> None:
            assert said is True
            row = found(store, granted.id)
            assert (row.fence, row.state) in ((1, State.PENDING), (2, State.RUNNING))

        self._everywhere(
            store,
            wired,
            answers,
            prepare,
            call,
            check,
            lambda store, granted: store.claim(granted.id, "worker-2", LONG),
        )

    @pytest.mark.parametrize("back", [False, True], ids=["a job whose key is taken", "an id that comes back"])
    def test_a_settlement_that_is_followed_by(
        self, store: Store, wired: tuple[Wire, Store], answers: bool, back: bool
    ) -> None:
        def prepare(store: Store) -> tuple[Granted, NewJob]:
            job = keyed(new_id())
            granted = start(store, job)
            assert not back or store.settle(builders.handed_over(granted))
            id, key = (job.id, None) if back else (new_id(), job.key)
            return start(store), new_job(id=id, key=key, payload=payload(b"second"), fingerprint=digest("another call"))

        def check(store: Store, given: tuple[Granted, NewJob], said: bool) -> None:
            assert (said, found(store, given[0].id).state) == (True, State.SUCCEEDED)
            row = found(store, given[1].id)
            assert (row.state, row.reason, len(row.failures)) == (
                (State.PENDING, Reason.REPLACED, 0) if back else (State.DEAD, Reason.FAILED, 1)
            )
            assert store.payload(row.id) == given[1].payload

        self._everywhere(
            store, wired, answers, prepare, lambda cut, given: cut.settle(succeeded(given[0], follow=given[1:])), check
        )

    def test_a_settlement_that_others_wait_for(self, store: Store, wired: tuple[Wire, Store], answers: bool) -> None:
        def prepare(store: Store) -> tuple[Granted, NewJob]:
            holder = keyed(new_id())
            granted, follower = start(store, holder), _like(holder, in_canvas=True)
            assert store.enqueue([follower]) == [Accepted(follower.id, holder.id)]
            assert take(store) == []
            return granted, follower

        def check(store: Store, given: tuple[Granted, NewJob], said: bool) -> None:
            assert said is True
            assert taken_ids(store) == [given[1].id]

        self._everywhere(store, wired, answers, prepare, lambda cut, given: cut.settle(succeeded(given[0])), check)

    def test_a_claim_that_is_to_tell(self, store: Store, wired: tuple[Wire, Store], answers: bool) -> None:
        """One whose answer was lost tells nobody, and another is to tell a lease later."""

        def prepare(store: Store) -> Granted:
            granted = succeed(store, told=False, tell_within=NONE)
            assert eventually(lambda: taken_ids(store, token="relay-1")) == [granted.id]
            assert store.sent("relay-1", [granted.id], NONE) == 1
            return granted

        def check(store: Store, granted: Granted, said: Any) -> None:
            assert isinstance(said, Settled)
            assert (said.state, said.result, said.fence) == (State.SUCCEEDED, result(), granted.fence)
            if not said.tell:
                assert eventually(lambda: taken_ids(store)) == [granted.id]
            store.told([(granted.id, granted.fence)])

        self._everywhere(
            store, wired, answers, prepare, lambda cut, granted: cut.claim(granted.id, "worker-2", SOON), check
        )

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
