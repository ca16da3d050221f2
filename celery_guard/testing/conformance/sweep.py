"""How lost attempts and lost messages are found and taken, and how what is over is deleted."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

import pytest

from celery_guard.job.row import Attempt
from celery_guard.job.state import Reason, State
from celery_guard.job.verdict import Accepted, Missing
from celery_guard.store.protocol import Store

from .builders import (
    LONG,
    NONE,
    SOON,
    dead,
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
from .crowd import together
from .moves import (
    accept,
    claim,
    die,
    eventually,
    found,
    lapse,
    lose,
    publish,
    row_of,
    start,
    succeed,
    suspect,
    take,
    taken_ids,
)

__all__ = ["TestLapsed", "TestRetain", "TestSuspects"]

_Meanwhile = Callable[[Store, Attempt], object]


def _taken_by_another_sweep(store: Store, attempt: Attempt) -> None:
    assert store.recover(attempt, recovered(attempt))


def _claimed_by_another(store: Store, attempt: Attempt) -> None:
    _taken_by_another_sweep(store, attempt)
    claim(store, attempt.id, "worker-2")


def _claimed_by_another_and_lapsed(store: Store, attempt: Attempt) -> None:
    _taken_by_another_sweep(store, attempt)
    claim(store, attempt.id, "worker-1", SOON)
    eventually(lambda: store.lapsed(10))


def _published_again(store: Store, attempt: Attempt) -> None:
    _taken_by_another_sweep(store, attempt)
    assert eventually(lambda: taken_ids(store, token="relay-2")) == [attempt.id]
    assert store.sent("relay-2", [attempt.id], LONG) == 1


_LAPSED_MEANWHILE: dict[str, _Meanwhile] = {
    "settled": lambda store, attempt: store.settle(succeeded(attempt)),  # type: ignore[arg-type]
    "settled as a retry": lambda store, attempt: store.settle(retried(attempt)),  # type: ignore[arg-type]
    "renewed": lambda store, attempt: store.renew([(attempt.id, attempt.fence, attempt.owner)], LONG),
    "taken by another sweep": _taken_by_another_sweep,
    "taken and published": _published_again,
    "claimed by another": _claimed_by_another,
    "claimed by the same worker, and lapsed": _claimed_by_another_and_lapsed,
}

_SUSPECT_MEANWHILE: dict[str, _Meanwhile] = {
    "claimed": lambda store, attempt: claim(store, attempt.id),
    "cancelled": lambda store, attempt: store.cancel(attempt.id),
    "deferred": lambda store, attempt: store.defer([attempt], LONG),
    "taken by another sweep": _taken_by_another_sweep,
    "published again": _published_again,
}


class TestLapsed:
    def test_a_live_lease_has_not_lapsed(self, store: Store) -> None:
        start(store, lease=LONG)
        assert store.lapsed(10) == []

    def test_a_lapsed_attempt_says_all_the_sweep_decides_by(self, store: Store) -> None:
        job = new_job(task="shop.réserver", queue="priorité", deadline_in=LONG)
        granted, attempt = lapse(store, job, owner="worker-1")
        assert (attempt.id, attempt.task, attempt.queue) == (job.id, job.task, job.queue)
        assert (attempt.state, attempt.fence, attempt.owner) == (State.RUNNING, granted.fence, granted.owner)
        assert (attempt.attempts, attempt.crashes, attempt.retries, attempt.cancel) == (1, 0, 0, False)
        assert NONE < attempt.age <= attempt.total < LONG
        assert SOON <= attempt.leased <= attempt.age
        assert attempt.remaining is not None
        assert NONE < attempt.remaining < LONG

    def test_a_lapsed_attempt_without_deadline_has_none(self, store: Store) -> None:
        _, attempt = lapse(store)
        assert attempt.remaining is None

    def test_a_wish_to_cancel_reaches_the_sweep(self, store: Store) -> None:
        granted = start(store, lease=SOON)
        assert store.cancel(granted.id).answer == "asked"
        [attempt] = eventually(lambda: store.lapsed(10))
        assert attempt.cancel is True
        assert store.recover(attempt, recovered(attempt, state=State.CANCELLED, reason=None))
        assert found(store, granted.id).state is State.CANCELLED

    def test_no_more_than_the_limit_are_answered(self, store: Store) -> None:
        for _ in range(3):
            start(store, lease=SOON)
        eventually(lambda: len(store.lapsed(10)) == 3)
        assert len(store.lapsed(2)) == 2

    def test_only_what_runs_lapses(self, store: Store) -> None:
        publish(store, new_job(), suspect_after=NONE)
        accept(store, new_job())
        assert store.settle(succeeded(start(store), told=False, tell_within=NONE))
        assert store.settle(dead(start(store), state=State.UNKNOWN, reason=None))
        assert store.lapsed(10) == []

    def test_a_recovered_attempt_is_published_again(self, store: Store) -> None:
        granted, attempt = lapse(store)
        assert store.recover(attempt, recovered(attempt, crashed=True))
        assert store.lapsed(10) == []
        [row] = take(store)
        assert (row.id, row.reason) == (granted.id, Reason.LOST)
        again = found(store, granted.id)
        assert (again.owner, again.fence, again.crashes) == (granted.owner, granted.fence, 1)

    def test_a_recovered_attempt_waits_for_its_delay(self, store: Store) -> None:
        _, attempt = lapse(store)
        assert store.recover(attempt, recovered(attempt, delay=LONG))
        assert take(store) == []

    def test_the_sweep_may_end_a_job(self, store: Store) -> None:
        granted, attempt = lapse(store)
        end = recovered(
            attempt, state=State.DEAD, reason=Reason.CRASHED, failure=failure("lost"), crashed=True, told=True
        )
        assert store.recover(attempt, end)
        row = found(store, granted.id)
        assert (row.state, row.reason, row.crashes, row.told) == (State.DEAD, Reason.CRASHED, 1, True)
        assert [f.message for f in row.failures] == ["lost"]
        assert row.keep_until is not None

    def test_a_job_the_sweep_ended_is_told(self, store: Store) -> None:
        granted, attempt = lapse(store)
        end = recovered(attempt, state=State.DEAD, reason=Reason.CRASHED, told=False, tell_within=NONE)
        assert store.recover(attempt, end)
        assert eventually(lambda: taken_ids(store)) == [granted.id]

    @pytest.mark.parametrize("meanwhile", _LAPSED_MEANWHILE)
    def test_what_has_changed_meanwhile_is_not_recovered(self, store: Store, meanwhile: str) -> None:
        granted, attempt = lapse(store)
        assert _LAPSED_MEANWHILE[meanwhile](store, attempt) is not False
        before = found(store, granted.id)
        for end in (recovered(attempt), recovered(attempt, state=State.DEAD, failure=failure())):
            assert store.recover(attempt, end) is False
        assert found(store, granted.id) == before

    def test_of_many_sweeps_exactly_one_recovers(self, store: Store) -> None:
        granted, attempt = lapse(store)
        answers = together(8, lambda _: store.recover(attempt, recovered(attempt, crashed=True)))
        assert answers.count(True) == 1
        assert found(store, granted.id).crashes == 1


class TestSuspects:
    def test_a_message_that_may_still_be_in_its_queue_is_no_suspect(self, store: Store) -> None:
        publish(store, new_job(), suspect_after=LONG)
        assert store.suspects(10) == []

    def test_a_suspect_says_all_the_sweep_decides_by(self, store: Store) -> None:
        job = new_job(task="shop.réserver", queue="priorité", deadline_in=LONG)
        attempt = suspect(store, job)
        assert (attempt.id, attempt.task, attempt.queue) == (job.id, job.task, job.queue)
        assert (attempt.state, attempt.publications, attempt.attempts, attempt.cancel) == (State.SENT, 1, 0, False)
        assert NONE < attempt.age <= attempt.total < LONG
        assert attempt.remaining is not None

    def test_a_job_whose_message_is_in_the_broker_is_not_published_and_is_looked_for(self, store: Store) -> None:
        job, again = new_job(in_broker=SOON), new_job(in_broker=LONG)
        accept(store, job)
        accept(store, again)
        assert taken_ids(store) == []
        claim(store, again.id)
        suspect = row_of(job.id, lambda: store.suspects(10))
        assert (suspect.state, suspect.attempts) == (State.SENT, 0)
        assert [row.id for row in store.suspects(10)] == [job.id]
        assert store.recover(suspect, recovered(suspect))
        assert taken_ids(store) == [job.id]

    def test_many_whose_messages_are_in_the_broker_are_not_published(self, store: Store) -> None:
        accept(store, *(new_job(in_broker=LONG) for _ in range(3)), fresh := new_job())
        assert taken_ids(store) == [fresh.id]

    def test_a_follower_whose_message_is_in_the_broker_waits_for_its_holder(self, store: Store) -> None:
        holder = keyed("order 1")
        granted = start(store, holder)
        follower = keyed("order 1", in_canvas=True, in_broker=LONG)
        assert store.enqueue([follower]) == [Accepted(follower.id, holder=holder.id)]
        assert take(store) == []
        assert store.settle(succeeded(granted))
        assert eventually(lambda: taken_ids(store)) == [follower.id]

    def test_only_what_was_sent_is_suspect(self, store: Store) -> None:
        accept(store, new_job())
        lapse(store)
        assert store.settle(succeeded(start(store), told=False, tell_within=NONE))
        assert store.suspects(10) == []

    def test_no_more_than_the_limit_are_answered(self, store: Store) -> None:
        publish(store, *(new_job() for _ in range(3)), suspect_after=NONE)
        eventually(lambda: len(store.suspects(10)) == 3)
        assert len(store.suspects(2)) == 2

    def test_a_suspect_may_still_be_claimed(self, store: Store) -> None:
        attempt = suspect(store)
        claim(store, attempt.id)
        assert store.suspects(10) == []

    def test_a_lost_message_is_published_again(self, store: Store) -> None:
        attempt = suspect(store)
        assert store.recover(attempt, recovered(attempt))
        [row] = take(store, "relay-2")
        assert (row.id, row.publications) == (attempt.id, 1)
        assert store.sent("relay-2", [row.id], LONG) == 1
        assert found(store, attempt.id).publications == 2

    def test_a_message_nobody_claims_may_end_the_job(self, store: Store) -> None:
        attempt = suspect(store)
        end = recovered(attempt, state=State.DEAD, reason=Reason.NEVER_CLAIMED, failure=failure("never"), told=True)
        assert store.recover(attempt, end)
        row = found(store, attempt.id)
        assert (row.state, row.reason, row.attempts) == (State.DEAD, Reason.NEVER_CLAIMED, 0)

    def test_a_deferred_suspect_is_looked_at_again_later(self, store: Store) -> None:
        attempt = suspect(store)
        assert store.defer([attempt], LONG) == 1
        assert store.suspects(10) == []
        assert found(store, attempt.id).state is State.SENT
        other = suspect(store)
        assert store.defer([other], SOON) == 1
        assert [row.id for row in eventually(lambda: store.suspects(10))] == [other.id]

    def test_a_suspect_is_overtaken_by_a_later_message_that_runs(self, store: Store) -> None:
        late = new_job(queue="slow")
        publish(store, late, suspect_after=SOON)
        assert row_of(late.id, lambda: store.suspects(10)).overtaken is False
        later = new_job(queue="slow")
        publish(store, later)
        assert row_of(late.id, lambda: store.suspects(10)).overtaken is False
        claim(store, later.id)
        assert row_of(late.id, lambda: store.suspects(10)).overtaken is True
        assert row_of(late.id, lambda: store.suspects(10, LONG)).overtaken is False, "not by so much"

    def test_a_suspect_is_not_overtaken_by_an_earlier_message_or_another_queue(self, store: Store) -> None:
        earlier, late, elsewhere = new_job(queue="slow"), new_job(queue="slow"), new_job(queue="Slow")
        publish(store, earlier)
        publish(store, late, suspect_after=SOON)
        publish(store, elsewhere)
        claim(store, earlier.id)
        claim(store, elsewhere.id)
        assert row_of(late.id, lambda: store.suspects(10)).overtaken is False

    def test_a_suspect_is_not_overtaken_by_a_message_that_was_in_the_broker_before_its_row(self, store: Store) -> None:
        """It may have been there for longer than the suspect. Published by a relay, it is one like any other."""
        late, adopted = new_job(queue="slow"), new_job(queue="slow", in_broker=LONG)
        publish(store, late, suspect_after=SOON)
        accept(store, adopted)
        granted = claim(store, adopted.id)
        assert row_of(late.id, lambda: store.suspects(10)).overtaken is False
        assert store.settle(retried(granted))
        token = new_id()
        assert eventually(lambda: taken_ids(store, token=token)) == [adopted.id]
        assert store.sent(token, [adopted.id], LONG) == 1
        claim(store, adopted.id)
        assert row_of(late.id, lambda: store.suspects(10)).overtaken is True

    @pytest.mark.parametrize("meanwhile", _SUSPECT_MEANWHILE)
    def test_what_has_changed_meanwhile_is_neither_recovered_nor_deferred(self, store: Store, meanwhile: str) -> None:
        attempt = suspect(store)
        assert _SUSPECT_MEANWHILE[meanwhile](store, attempt) is not False
        before = found(store, attempt.id)
        for end in (recovered(attempt), recovered(attempt, state=State.DEAD, failure=failure())):
            assert store.recover(attempt, end) is False
        assert store.defer([attempt], LONG) == 0
        assert found(store, attempt.id) == before

    def test_a_message_that_was_settled_late_and_sent_again_is_not_the_one_that_was_seen(self, store: Store) -> None:
        def published() -> Attempt:
            token = new_id()
            assert eventually(lambda: taken_ids(store, token=token)) == [granted.id]
            assert store.sent(token, [granted.id], SOON) == 1
            return row_of(granted.id, lambda: store.suspects(10))

        granted = lose(store)
        seen = published()
        assert store.settle(retried(granted))
        published()
        # state, fence, owner are the same, and it is due; but it is nobody's any more who might settle late
        assert store.recover(seen, recovered(seen)) is False
        assert store.settle(succeeded(granted)) is False

    def test_a_job_lost_after_it_was_sent_again_is_still_its_late_owners(self, store: Store) -> None:
        granted = lose(store)
        take(store, "relay-1")
        assert store.sent("relay-1", [granted.id], SOON) == 1
        [attempt] = eventually(lambda: store.suspects(10))
        assert store.recover(attempt, recovered(attempt))
        assert store.settle(succeeded(granted))


class TestRetain:
    def test_what_is_over_is_deleted_with_all_that_belongs_to_it(self, store: Store) -> None:
        job = new_job(payload=payload(b"first"))
        granted = start(store, job)
        assert store.settle(retried(granted, failure=failure(), payload=payload(b"second")))
        big = result(b"x" * 300_000)
        assert store.settle(succeeded(claim(store, job.id), keep=NONE, result=big))
        assert eventually(lambda: store.retain(10)) == 1
        assert store.job(job.id) is None
        assert store.outcome(job.id) is None
        assert (store.payload(job.id), store.payload(job.id, 0), store.payload(job.id, 1)) == (None, None, None)
        assert store.claim(job.id, "worker-1", LONG) == Missing(job.id)
        assert store.counts() == {}

    def test_nothing_of_a_deleted_job_is_found_by_a_new_one_of_its_id(self, store: Store) -> None:
        job = new_job()
        granted = start(store, job)
        assert store.settle(retried(granted, failure=failure(), payload=payload(b"second")))
        assert store.settle(succeeded(claim(store, job.id), keep=NONE, result=result(b"x" * 300_000)))
        assert eventually(lambda: store.retain(10)) == 1
        assert store.enqueue([job]) == [Accepted(job.id)]
        assert (found(store, job.id).failures, store.payload(job.id, 1)) == ((), None)
        assert store.settle(dead(claim(store, job.id), failure=None))
        assert store.outcome(job.id) == (State.DEAD, None, None)

    def test_what_is_to_be_kept_is_kept(self, store: Store) -> None:
        kept = [succeed(store, keep=LONG).id, die(store, keep=LONG).id]
        waiting, published = new_job(), new_job()
        publish(store, published, suspect_after=NONE)
        accept(store, waiting)
        running, unknown = start(store, lease=NONE), start(store)
        assert store.settle(dead(unknown, state=State.UNKNOWN, reason=None, keep=NONE))
        over = succeed(store, keep=NONE)
        assert eventually(lambda: store.retain(100)) == 1
        assert store.job(over.id) is None
        for id in (*kept, waiting.id, published.id, running.id, unknown.id):
            assert store.job(id) is not None

    def test_a_job_that_waits_to_be_repeated_is_kept(self, store: Store) -> None:
        granted = start(store)
        assert store.settle(retried(granted, delay=LONG, keep=NONE))
        over = succeed(store, keep=NONE)
        assert eventually(lambda: store.retain(100)) == 1
        assert store.job(over.id) is None
        assert store.job(granted.id) is not None

    def test_a_replayed_job_is_not_over_any_more(self, store: Store) -> None:
        again, over = die(store, keep=NONE), die(store, keep=NONE)
        assert [answer.answer for answer in store.replay([again.id])] == ["replayed"]
        assert eventually(lambda: store.retain(100)) == 1
        assert store.job(over.id) is None
        assert found(store, again.id).keep_until is None

    def test_no_more_than_the_limit_are_deleted_at_once(self, store: Store) -> None:
        for _ in range(5):
            succeed(store, keep=NONE)
        assert eventually(lambda: store.retain(2)) == 2
        assert [store.retain(2) for _ in range(3)] == [2, 1, 0]

    def test_what_is_over_by_less_than_its_time_is_kept(self, store: Store) -> None:
        granted = succeed(store, keep=timedelta(minutes=5))
        assert store.retain(10) == 0
        assert found(store, granted.id).state is State.SUCCEEDED
