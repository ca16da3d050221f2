"""How one attempt takes a job, and how it keeps it: the verdicts of claim, the fence, the counts, the lease."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

import pytest

from celery_guard.job.instant import instant_to_datetime
from celery_guard.job.settlement import Settlement
from celery_guard.job.state import Reason, State
from celery_guard.job.verdict import Granted, Leased, Missing, NotDue, Settled
from celery_guard.store.protocol import Renewal, Store

from .builders import LONG, SOON, dead, keyed, new_id, new_job, recovered, retried, succeeded
from .moves import accept, claim, die, eventually, found, lapse, lease_of, lose, publish, start, succeed, take

__all__ = ["TestClaim", "TestCounts", "TestRenew"]


class TestClaim:
    def test_a_published_job_is_granted(self, store: Store) -> None:
        job = keyed("order 1", tenant="acme", correlation_id="request-7", root_id=new_id())
        publish(store, job)
        granted = claim(store, job.id, "worker-1")
        assert (granted.id, granted.fence, granted.generation) == (job.id, 1, 0)
        assert granted.owner.startswith("worker-1")
        assert (granted.attempts, granted.crashes, granted.retries, granted.cancel) == (1, 0, 0, False)
        assert (granted.tenant, granted.key, granted.correlation_id) == (job.tenant, job.key, job.correlation_id)
        assert (granted.root_id, granted.holder) == (job.root_id, None)
        row = found(store, job.id)
        assert (row.state, row.owner, row.fence, row.attempts) == (State.RUNNING, granted.owner, 1, 1)
        assert row.started is not None
        assert granted.created is not None
        assert instant_to_datetime(granted.created) == row.created

    def test_a_job_that_no_relay_has_seen_is_granted(self, store: Store) -> None:
        job = new_job()
        accept(store, job)
        assert isinstance(store.claim(job.id, "worker-1", LONG), Granted)

    def test_a_worker_may_be_faster_than_the_relays_mark(self, store: Store) -> None:
        job = new_job()
        accept(store, job)
        take(store, "relay-1")
        granted = claim(store, job.id)
        store.sent("relay-1", [job.id], LONG)
        row = found(store, job.id)
        assert (row.state, row.fence, row.owner) == (State.RUNNING, granted.fence, granted.owner)
        assert store.settle(succeeded(granted))

    def test_a_body_may_be_over_before_the_relays_mark(self, store: Store) -> None:
        job = new_job()
        accept(store, job)
        take(store, "relay-1")
        assert store.settle(succeeded(claim(store, job.id)))
        store.sent("relay-1", [job.id], LONG)
        assert found(store, job.id).state is State.SUCCEEDED
        assert take(store) == []

    def test_a_retry_that_waits_is_not_marked_by_the_relay_of_the_attempt_before(self, store: Store) -> None:
        job = new_job()
        accept(store, job)
        take(store, "relay-1")
        assert store.settle(retried(claim(store, job.id), delay=LONG))
        assert store.sent("relay-1", [job.id], SOON) == 0
        row = found(store, job.id)
        assert (row.state, row.reason) == (State.PENDING, Reason.RETRY)

    def test_a_retry_that_waits_is_not_due(self, store: Store) -> None:
        granted = start(store)
        assert store.settle(retried(granted, delay=LONG))
        assert store.claim(granted.id, "worker-2", LONG) == NotDue(granted.id, Reason.RETRY)

    def test_a_running_job_is_leased(self, store: Store) -> None:
        granted = start(store, owner="worker-1")
        assert store.claim(granted.id, "worker-2", LONG) == Leased(granted.id, granted.owner)
        assert found(store, granted.id).fence == granted.fence

    def test_not_even_its_owner_claims_a_running_job_again(self, store: Store) -> None:
        granted = start(store, owner="worker-1")
        assert store.claim(granted.id, "worker-1", LONG) == Leased(granted.id, granted.owner)

    def test_two_attempts_of_one_worker_are_two_owners(self, store: Store) -> None:
        first = start(store, owner="worker-1")
        assert store.settle(retried(first))
        assert claim(store, first.id, "worker-1").owner != first.owner

    def test_a_lapsed_lease_is_the_sweeps_to_take(self, store: Store) -> None:
        granted, _ = lapse(store, owner="worker-1")
        assert store.claim(granted.id, "worker-2", LONG) == Leased(granted.id, granted.owner)

    def test_a_job_of_unknown_outcome_is_not_granted(self, store: Store) -> None:
        granted = start(store)
        assert store.settle(dead(granted, state=State.UNKNOWN, reason=None))
        verdict = store.claim(granted.id, "worker-2", LONG)
        assert not isinstance(verdict, Granted), verdict
        assert found(store, granted.id).state is State.UNKNOWN

    @pytest.mark.parametrize("end", [succeed, die])
    def test_a_job_that_has_ended_is_settled(self, store: Store, end: Callable[[Store], Granted]) -> None:
        granted = end(store)
        row = found(store, granted.id)
        verdict = store.claim(granted.id, "worker-2", LONG)
        assert isinstance(verdict, Settled)
        assert (verdict.id, verdict.state, verdict.reason, verdict.tell) == (row.id, row.state, row.reason, False)
        assert verdict.fence == granted.fence
        assert found(store, granted.id) == row

    def test_a_job_that_nobody_accepted_is_missing(self, store: Store) -> None:
        nobody = new_id()
        assert store.claim(nobody, "worker-1", LONG) == Missing(nobody)
        assert store.job(nobody) is None

    def test_a_claim_tells_how_long_ago_the_job_was_accepted(self, store: Store) -> None:
        assert timedelta(0) <= start(store).age < LONG

    def test_what_is_asked_to_stop_is_granted_with_the_wish(self, store: Store) -> None:
        granted = start(store)
        store.cancel(granted.id)
        assert store.settle(retried(granted))
        assert claim(store, granted.id).cancel is True


class TestCounts:
    def test_the_fence_grows_with_every_claim(self, store: Store) -> None:
        granted = start(store)
        fences = [granted.fence]
        for end in (retried, lambda g: retried(g, charged=False), dead, retried):
            assert store.settle(end(granted))
            store.replay([granted.id])
            granted = claim(store, granted.id)
            fences.append(granted.fence)
        assert fences == sorted(set(fences))

    def test_the_fence_grows_after_a_crash(self, store: Store) -> None:
        first = lose(store)
        assert claim(store, first.id).fence > first.fence

    def test_an_attempt_is_counted_when_it_starts(self, store: Store) -> None:
        granted = start(store)
        assert found(store, granted.id).attempts == 1
        assert store.settle(retried(granted))
        assert found(store, granted.id).attempts == 1
        assert claim(store, granted.id).attempts == 2

    def test_an_attempt_that_is_not_charged_is_not_counted(self, store: Store) -> None:
        granted = start(store)
        assert store.settle(retried(granted, reason=Reason.INTERRUPTED, charged=False, retried=False))
        assert found(store, granted.id).attempts == 0
        again = claim(store, granted.id)
        assert (again.attempts, again.retries, again.fence) == (1, 0, 2)

    def test_retries_are_counted_apart_from_attempts(self, store: Store) -> None:
        granted = start(store)
        assert store.settle(retried(granted))
        granted = claim(store, granted.id)
        assert (granted.attempts, granted.retries, granted.crashes) == (2, 1, 0)
        assert store.settle(retried(granted, retried=False))
        assert [row.retries for row in take(store)] == [1]
        assert claim(store, granted.id).retries == 1

    def test_crashes_are_counted_by_the_sweep(self, store: Store) -> None:
        first = lose(store)
        again = claim(store, first.id)
        assert (again.crashes, again.attempts, again.retries) == (1, 2, 0)

    def test_crashes_are_counted_by_settle(self, store: Store) -> None:
        granted = start(store)
        assert store.settle(retried(granted, crashed=True, retried=False))
        assert claim(store, granted.id).crashes == 1

    def test_interruptions_are_counted_until_an_attempt_ends_by_itself(self, store: Store) -> None:
        granted = start(store)
        cut_short = {"reason": Reason.INTERRUPTED, "charged": False, "retried": False}
        seen = []
        for interrupted in (True, True, None, True, False, True):
            assert store.settle(retried(granted, **cut_short, interrupted=interrupted))
            seen.append(found(store, granted.id).interruptions)
            granted = claim(store, granted.id)
            assert granted.interruptions == seen[-1]
        assert seen == [1, 2, 2, 3, 0, 1]


class TestRenew:
    def test_a_renewed_lease_does_not_lapse(self, store: Store) -> None:
        kept, left = start(store, lease=SOON, owner="worker-1"), start(store, lease=SOON, owner="worker-1")
        assert store.renew([lease_of(kept)], LONG) == [Renewal(kept.id, kept.fence, cancel=False)]
        assert [row.id for row in eventually(lambda: store.lapsed(10))] == [left.id]

    def test_a_renewal_starts_the_lease_anew(self, store: Store) -> None:
        granted = start(store, lease=LONG, owner="worker-1")
        assert store.renew([lease_of(granted)], SOON)
        assert [row.id for row in eventually(lambda: store.lapsed(10))] == [granted.id]

    def test_many_leases_are_renewed_at_once(self, store: Store) -> None:
        jobs = [new_job() for _ in range(200)]
        accept(store, *jobs)
        leases = [lease_of(claim(store, job.id)) for job in jobs]
        renewals = store.renew(iter(leases), LONG)
        assert sorted((one.id, one.fence) for one in renewals) == sorted((id, fence) for id, fence, _ in leases)

    def test_nothing_is_renewed_for_nothing(self, store: Store) -> None:
        assert store.renew([], LONG) == []

    def test_a_renewal_brings_the_wish_to_cancel(self, store: Store) -> None:
        granted = start(store, owner="worker-1")
        store.cancel(granted.id)
        assert store.renew([lease_of(granted)], LONG) == [Renewal(granted.id, granted.fence, cancel=True)]

    def test_a_lease_of_another_owner_is_not_renewed(self, store: Store) -> None:
        granted = start(store, owner="worker-1", lease=SOON)
        assert store.renew([(granted.id, granted.fence, "worker-2")], LONG) == []
        assert eventually(lambda: store.lapsed(10))

    def test_a_lease_of_an_older_fence_is_not_renewed(self, store: Store) -> None:
        first = lose(store)
        second = claim(store, first.id, "worker-1")
        assert store.renew([lease_of(first)], LONG) == []
        assert store.renew([(first.id, first.fence, second.owner)], LONG) == []
        assert [renewal.fence for renewal in store.renew([lease_of(second)], LONG)] == [second.fence]

    def test_a_lease_is_lost_once_the_sweep_has_taken_the_job(self, store: Store) -> None:
        first = lose(store)
        assert store.renew([lease_of(first)], LONG) == []
        assert found(store, first.id).state is State.PENDING

    @pytest.mark.parametrize("end", [succeeded, dead, retried])
    def test_a_settled_lease_is_not_renewed(self, store: Store, end: Callable[[Granted], Settlement]) -> None:
        granted = start(store)
        assert store.settle(end(granted))
        before = found(store, granted.id)
        assert store.renew([lease_of(granted)], LONG) == []
        assert found(store, granted.id) == before

    def test_a_lapsed_lease_that_nobody_took_is_renewed(self, store: Store) -> None:
        granted, attempt = lapse(store)
        assert [r.id for r in store.renew([lease_of(granted)], LONG)] == [granted.id]
        assert store.lapsed(10) == []
        assert store.recover(attempt, recovered(attempt)) is False

    def test_lost_leases_do_not_keep_the_others_from_renewal(self, store: Store) -> None:
        kept, over = start(store), start(store)
        assert store.settle(succeeded(over))
        renewals = store.renew([lease_of(over), (new_id(), 1, kept.owner), lease_of(kept)], LONG)
        assert [renewal.id for renewal in renewals] == [kept.id]
