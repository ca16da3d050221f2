"""Races of threads: whatever the order, one wins, and nobody is left waiting."""

from __future__ import annotations

from celery_guard.job.row import NewJob
from celery_guard.job.state import State
from celery_guard.job.verdict import Accepted, Busy, Conflict, Duplicate, Enqueued, Granted, Leased
from celery_guard.store.protocol import Store

from .builders import LONG, keyed, new_job, payload, recovered, retried, succeeded
from .crowd import together
from .moves import accept, claim, die, eventually, found, lapse, start, take, taken_ids

__all__ = ["TestRaces"]


def _insist(store: Store, job: NewJob) -> Enqueued:
    """Enqueue one job until the store says more than that the key is being taken."""

    def answer() -> Enqueued | None:
        [verdict] = store.enqueue([job])
        return None if isinstance(verdict, Busy) else verdict

    verdict = eventually(answer)
    assert verdict is not None
    return verdict


class TestRaces:
    def test_of_many_claims_exactly_one_is_granted(self, store: Store) -> None:
        job = new_job()
        accept(store, job)
        fences = []
        for _ in range(30):
            verdicts = together(16, lambda number: store.claim(job.id, f"worker-{number}", LONG))
            granted = [verdict for verdict in verdicts if isinstance(verdict, Granted)]
            assert len(granted) == 1, verdicts
            assert verdicts.count(Leased(job.id, granted[0].owner)) == 15
            fences.append(granted[0].fence)
            assert store.settle(retried(granted[0]))
        assert fences == sorted({*fences})

    def test_of_many_takers_of_a_key_exactly_one_is_accepted(self, store: Store) -> None:
        for round in range(6):
            jobs = [keyed(f"order {round}") for _ in range(8)]
            verdicts = together(8, lambda number, jobs=jobs: _insist(store, jobs[number]))  # type: ignore[misc]
            [winner] = [verdict for verdict in verdicts if isinstance(verdict, Accepted)]
            twins = [verdict for verdict in verdicts if isinstance(verdict, Duplicate)]
            assert {twin.holder for twin in twins} == {winner.id}
            assert len(twins) == 7
        assert store.counts() == {State.PENDING: 6}

    def test_of_many_payloads_for_a_key_exactly_one_is_accepted(self, store: Store) -> None:
        jobs = [keyed("order 1", f"amount {number}") for number in range(8)]
        verdicts = together(8, lambda number: _insist(store, jobs[number]))
        [winner] = [verdict for verdict in verdicts if isinstance(verdict, Accepted)]
        assert {v.holder for v in verdicts if isinstance(v, Conflict)} == {winner.id}
        assert sum(isinstance(verdict, Conflict) for verdict in verdicts) == 7

    def test_of_many_sends_of_one_id_exactly_one_is_accepted(self, store: Store) -> None:
        for _ in range(6):
            job = new_job(payload=payload(b"one"))
            verdicts = together(8, lambda _, job=job: _insist(store, job))  # type: ignore[misc]
            assert verdicts.count(Accepted(job.id)) == 1
            assert verdicts.count(Duplicate(job.id, job.id, State.PENDING)) == 7
            assert store.payload(job.id) == job.payload

    def test_batches_in_opposite_order_both_end(self, store: Store) -> None:
        for round in range(4):
            keys = [f"{round}/{number}" for number in range(20)]
            batches = [[keyed(key) for key in keys], [keyed(key) for key in keys[::-1]]]

            def send(number: int, batches: list[list[NewJob]] = batches) -> None:
                store.enqueue(batches[number])
                for job in batches[number]:
                    _insist(store, job)

            together(2, send)
            assert len([job for job in store.jobs(limit=1000) if job.key is not None]) == 20 * (round + 1)

    def test_a_cancel_and_a_claim_agree(self, store: Store) -> None:
        for _ in range(12):
            job = new_job()
            accept(store, job)
            answers = together(2, lambda n, id=job.id: store.cancel(id) if n else store.claim(id, "worker-1", LONG))  # type: ignore[misc]
            row = found(store, job.id)
            if isinstance(answers[0], Granted):
                assert (row.state, getattr(answers[1], "answer", "")) == (State.RUNNING, "asked")
                assert row.cancel or answers[0].cancel
            else:
                assert (row.state, getattr(answers[1], "answer", "")) == (State.CANCELLED, "cancelled")

    def test_a_claim_and_the_relays_mark_agree(self, store: Store) -> None:
        for _ in range(12):
            job = new_job()
            accept(store, job)
            take(store, "relay-1")
            together(2, lambda n, id=job.id: claim(store, id) if n else store.sent("relay-1", [id], LONG))  # type: ignore[misc]
            assert found(store, job.id).state is State.RUNNING

    def test_a_late_success_is_not_lost_to_the_sweep(self, store: Store) -> None:
        for _ in range(8):
            granted, attempt = lapse(store)
            settled, _ = together(
                2,
                lambda n, g=granted, a=attempt: store.recover(a, recovered(a)) if n else store.settle(succeeded(g)),  # type: ignore[misc]
            )
            assert settled is True
            assert found(store, granted.id).state is State.SUCCEEDED

    def test_a_late_owner_and_the_next_claim_agree(self, store: Store) -> None:
        for _ in range(8):
            granted, attempt = lapse(store)
            assert store.recover(attempt, recovered(attempt))
            settled, verdict = together(
                2,
                lambda n, g=granted: store.claim(g.id, "worker-2", LONG) if n else store.settle(succeeded(g)),  # type: ignore[misc]
            )
            assert settled is not isinstance(verdict, Granted)
            assert found(store, granted.id).state is (State.SUCCEEDED if settled else State.RUNNING)

    def test_a_follower_accepted_while_its_holder_ends_is_released(self, store: Store) -> None:
        for round in range(12):
            holder, follower = keyed(f"order {round}"), keyed(f"order {round}", in_canvas=True)
            granted = start(store, holder)

            def work(number: int, granted: Granted = granted, follower: NewJob = follower) -> object:
                return _insist(store, follower) if number else store.settle(succeeded(granted))

            settled, verdict = together(2, work)
            assert settled is True
            assert verdict == Accepted(follower.id, holder=holder.id)
            assert eventually(lambda: taken_ids(store)) == [follower.id]

    def test_a_follower_that_a_relay_meets_while_its_holder_ends_is_released(self, store: Store) -> None:
        for round in range(12):
            holder, follower = keyed(f"order {round}"), keyed(f"order {round}", in_canvas=True)
            granted = start(store, holder)
            assert store.enqueue([follower]) == [Accepted(follower.id, holder=holder.id)]

            def work(number: int, granted: Granted = granted) -> list[str]:
                return taken_ids(store) if number else [] if store.settle(succeeded(granted)) else ["refused"]

            refused, taken = together(2, work)
            assert refused == []
            assert taken or eventually(lambda: taken_ids(store)) == [follower.id]

    def test_a_replay_and_a_fresh_job_of_its_key_agree(self, store: Store) -> None:
        for round in range(8):
            old, fresh = keyed(f"order {round}"), keyed(f"order {round}")
            die(store, old)
            accepted, answers = together(
                2,
                lambda n, old=old, fresh=fresh: store.replay([old.id]) if n else _insist(store, fresh),  # type: ignore[misc]
            )
            replayed = found(store, old.id).state is State.PENDING
            assert replayed is not isinstance(accepted, Accepted)
            assert (store.job(fresh.id) is None) is replayed
            assert answers
