"""How due rows are taken, marked and given back by relays that may die, pause or race."""

from __future__ import annotations

from datetime import timedelta

import pytest

from celery_guard.job.row import NewJob
from celery_guard.job.state import Kind, Reason, State
from celery_guard.job.verdict import NotDue
from celery_guard.store.protocol import Store

from .builders import LONG, NONE, SOON, ended, failure, keyed, new_id, new_job, payload, recovered, succeeded
from .crowd import together
from .moves import accept, claim, eventually, found, publish, row_of, start, store_now, succeed, take, taken_ids
from .subject import Subject

__all__ = ["TestDoubling", "TestGiveBack", "TestRelay", "TestTokens"]


class TestRelay:
    def test_a_taken_row_carries_all_it_takes_to_publish_it(self, store: Store) -> None:
        job = keyed(
            "order 1", task="shop.réserver", queue="priorité", tenant="acme", payload=payload(b"\xff\x00", '{"é": 1}')
        )
        accept(store, job)
        [row] = take(store)
        assert (row.id, row.task, row.queue, row.tenant, row.payload) == (
            job.id,
            job.task,
            job.queue,
            job.tenant,
            job.payload,
        )
        assert (row.kind, row.state, row.reason, row.holder) == (Kind.RUN, State.PENDING, Reason.NEW, None)
        assert (row.generation, row.retries, row.publications, row.refusals, row.expired) == (0, 0, 0, 0, False)

    def test_a_taken_row_is_not_taken_again_while_it_is_held(self, store: Store) -> None:
        accept(store, new_job())
        assert len(take(store, "relay-1")) == 1
        assert take(store, "relay-2") == []
        assert take(store, "relay-1") == []

    def test_the_oldest_due_come_first(self, store: Store) -> None:
        jobs = [new_job(delay=timedelta(milliseconds=ms)) for ms in (90, 30, 120, 60, 150)]
        for job in jobs:
            accept(store, job)
        last = max(found(store, job.id).due or store_now(store) for job in jobs)
        eventually(lambda: store_now(store) > last)
        by_due = [job.id for job in sorted(jobs, key=lambda job: found(store, job.id).due or last)]
        taken = taken_ids(store, limit=2) + taken_ids(store, limit=2) + taken_ids(store, limit=2)
        assert {*taken[:2]} == {*by_due[:2]}
        assert {*taken[2:4]} == {*by_due[2:4]}
        assert taken[4:] == by_due[4:]

    def test_no_more_than_the_limit_are_taken(self, store: Store) -> None:
        accept(store, *(new_job() for _ in range(7)))
        assert [len(take(store, limit=3)) for _ in range(4)] == [3, 3, 1, 0]

    def test_a_published_row_is_sent(self, store: Store) -> None:
        job = new_job()
        publish(store, job)
        row = found(store, job.id)
        assert (row.state, row.publications) == (State.SENT, 1)
        assert row.sent is not None
        assert take(store) == []
        assert store.next_due() is None

    def test_only_the_rows_that_were_published_are_sent(self, store: Store) -> None:
        first, second = new_job(), new_job()
        accept(store, first, second)
        assert len(take(store, "relay-1")) == 2
        assert store.sent("relay-1", [first.id, new_id()], LONG) == 1
        assert store.sent("relay-1", [], LONG) == 0
        assert (found(store, first.id).state, found(store, second.id).state) == (State.SENT, State.PENDING)

    def test_a_row_is_marked_once(self, store: Store) -> None:
        job = new_job()
        accept(store, job)
        take(store, "relay-1")
        assert store.sent("relay-1", [job.id], LONG) == 1
        store.sent("relay-1", [job.id], LONG)
        assert found(store, job.id).publications == 1

    def test_a_carried_row_is_over_once_it_is_published(self, store: Store) -> None:
        job = new_job(kind=Kind.CARRIED)
        accept(store, job)
        [row] = take(store, "relay-1")
        assert row.kind is Kind.CARRIED
        assert store.sent("relay-1", [job.id], LONG) == 1
        done = found(store, job.id)
        assert (done.state, done.told, done.due) == (State.SUCCEEDED, True, None)
        assert done.keep_until is not None
        assert take(store) == []

    def test_what_a_person_cancelled_meanwhile_is_not_sent(self, store: Store) -> None:
        job = new_job()
        accept(store, job)
        take(store, "relay-1")
        store.cancel(job.id)
        store.sent("relay-1", [job.id], LONG)
        assert found(store, job.id).state is State.CANCELLED

    def test_waiting_comes_to_an_end(self, store: Store) -> None:
        assert store.wait(SOON) in (True, False)
        accept(store, new_job())
        assert store.wait(NONE) in (True, False)

    def test_relays_that_race_never_take_the_same_row(self, store: Store) -> None:
        jobs = [new_job() for _ in range(120)]
        accept(store, *jobs)

        def relay(_: int) -> list[str]:
            mine: list[str] = []
            while rows := taken_ids(store, limit=7):
                mine += rows
            return mine

        taken = [id for mine in together(4, relay) for id in mine]
        taken += taken_ids(store)
        assert sorted(taken) == sorted(job.id for job in jobs)


class TestTokens:
    def test_the_rows_of_a_relay_that_died_come_back(self, store: Store) -> None:
        job = new_job()
        accept(store, job)
        assert taken_ids(store, token="relay-1", hold=SOON) == [job.id]
        assert eventually(lambda: taken_ids(store, token="relay-2")) == [job.id]

    def test_a_relay_that_was_paused_cannot_mark_the_rows_of_another(self, store: Store) -> None:
        job = _overtaken(store)
        assert store.sent("relay-1", [job.id], LONG) == 0
        assert found(store, job.id).state is State.PENDING
        assert store.sent("relay-2", [job.id], LONG) == 1
        assert found(store, job.id).publications == 1

    def test_a_relay_that_was_paused_cannot_give_back_the_rows_of_another(self, store: Store) -> None:
        job = _overtaken(store)
        assert store.postpone("relay-1", [(job.id, NONE)], refused=True) == 0
        assert take(store) == []
        assert found(store, job.id).refusals == 0

    def test_a_relay_that_was_paused_cannot_end_the_rows_of_another(self, store: Store) -> None:
        job = new_job()
        accept(store, job)
        [row] = take(store, "relay-1", hold=SOON)
        eventually(lambda: take(store, "relay-2"))
        assert store.end("relay-1", ended(row)) is False
        assert found(store, job.id).state is State.PENDING

    def test_a_relay_whose_hold_is_over_still_marks_what_nobody_took(self, store: Store) -> None:
        job = new_job()
        accept(store, job)
        take(store, "relay-1", hold=NONE)
        assert store.sent("relay-1", [job.id], LONG) == 1
        assert found(store, job.id).state is State.SENT


class TestGiveBack:
    def test_a_row_given_back_is_due_after_its_delay(self, store: Store) -> None:
        first, second = new_job(), new_job()
        accept(store, first, second)
        take(store, "relay-1")
        assert store.postpone("relay-1", [(first.id, NONE), (second.id, LONG)], refused=False) == 2
        assert eventually(lambda: taken_ids(store)) == [first.id]
        assert take(store) == []

    def test_a_row_given_back_for_later_is_not_claimed_before(self, store: Store) -> None:
        job = new_job()
        accept(store, job)
        take(store, "relay-1")
        store.postpone("relay-1", [(job.id, LONG)], refused=False)
        assert store.claim(job.id, "worker-1", LONG) == NotDue(job.id, Reason.NEW)

    def test_a_refusal_counts_and_an_outage_does_not(self, store: Store) -> None:
        accept(store, new_job())
        seen = []
        for refused in (True, False, True):
            [row] = eventually(lambda: take(store, "relay-1"))
            seen.append(row.refusals)
            assert store.postpone("relay-1", [(row.id, NONE)], refused=refused) == 1
        [row] = eventually(lambda: take(store))
        assert [*seen, row.refusals] == [0, 1, 1, 2]
        assert row.publications == 0

    def test_an_outcome_to_be_told_may_be_given_back(self, store: Store) -> None:
        granted = start(store)
        assert store.settle(succeeded(granted, told=False, tell_within=NONE))
        assert eventually(lambda: taken_ids(store, token="relay-1")) == [granted.id]
        assert store.postpone("relay-1", [(granted.id, SOON)], refused=False) == 1
        assert eventually(lambda: taken_ids(store)) == [granted.id]

    def test_what_was_claimed_meanwhile_is_not_given_back(self, store: Store) -> None:
        job = new_job()
        accept(store, job)
        take(store, "relay-1")
        granted = claim(store, job.id)
        store.postpone("relay-1", [(job.id, NONE)], refused=True)
        assert found(store, job.id).state is State.RUNNING
        assert store.lapsed(10) == []
        assert store.settle(succeeded(granted))

    def test_poison_rows_do_not_starve_the_others(self, store: Store) -> None:
        poison = [new_job(queue="poison") for _ in range(10)]
        accept(store, *poison)
        good = [new_job() for _ in range(6)]
        accept(store, *good)
        left: list[str] = []
        for cycle in range(4):
            rows = take(store, f"relay-{cycle}", limit=4)
            refused = [(row.id, LONG) for row in rows if row.queue == "poison"]
            assert store.postpone(f"relay-{cycle}", refused, refused=True) == len(refused)
            left += [row.id for row in rows if row.queue != "poison"]
        assert sorted(left) == sorted(job.id for job in good)
        assert {found(store, job.id).refusals for job in poison} == {1}

    def test_a_taken_row_may_be_ended(self, store: Store) -> None:
        job = new_job()
        accept(store, job)
        [row] = take(store, "relay-1")
        assert store.end("relay-1", ended(row, reason=Reason.EXPIRED, failure=failure("too late")))
        done = found(store, job.id)
        assert (done.state, done.reason, done.told) == (State.DEAD, Reason.EXPIRED, True)
        assert [f.message for f in done.failures] == ["too late"]
        assert done.keep_until is not None
        assert (done.fence, done.attempts) == (0, 0)
        assert take(store) == []

    def test_a_row_that_was_ended_untold_is_told(self, store: Store) -> None:
        job = new_job()
        accept(store, job)
        [row] = take(store, "relay-1")
        assert store.end("relay-1", ended(row, told=False, tell_within=NONE))
        [again] = eventually(lambda: take(store))
        assert (again.id, again.state, again.reason) == (job.id, State.DEAD, Reason.UNPUBLISHABLE)

    @pytest.mark.parametrize("untold", [False, True], ids=["waiting", "to be told"])
    def test_a_row_whose_message_is_gone_is_taken_to_be_ended(
        self, store: Store, subject: Subject, untold: bool
    ) -> None:
        job = new_job()
        if untold:
            succeed(store, job, told=False, tell_within=NONE, keep=NONE)
        else:
            accept(store, job)
        subject.lose_message(subject.url, job.id)
        [row] = eventually(lambda: take(store, "relay-1"))
        assert (row.id, row.payload) == (job.id, None)
        if untold:
            store.told([(job.id, row.fence)])
        else:
            assert store.end("relay-1", ended(row, keep=NONE))
        assert eventually(lambda: store.retain(10)) == 1
        assert store.next_due() is None

    def test_a_row_that_was_not_taken_is_not_ended(self, store: Store) -> None:
        job = new_job()
        accept(store, job)
        [row] = take(store, "relay-1")
        assert store.end("relay-2", ended(row)) is False
        claim(store, job.id)
        assert store.end("relay-1", ended(row)) is False
        assert found(store, job.id).state is State.RUNNING


class TestDoubling:
    def test_the_wait_for_a_claim_doubles_with_each_publication(self, store: Store) -> None:
        job = new_job()
        accept(store, job)
        assert [_published(store, job) for _ in range(4)] == [1, 2, 4, 8]

    def test_the_wait_for_a_claim_starts_anew_after_a_claim(self, store: Store) -> None:
        job = new_job()
        accept(store, job)
        _published(store, job)
        assert _published(store, job) == 2
        granted = claim(store, job.id)
        assert store.settle(succeeded(granted, state=State.PENDING, reason=Reason.RETRY, told=False, result=None))
        assert _published(store, job) == 1


def _overtaken(store: Store) -> NewJob:
    """A job that relay-1 has taken and, after a pause of relay-1, relay-2 too."""
    job = new_job()
    accept(store, job)
    assert taken_ids(store, token="relay-1", hold=SOON) == [job.id]
    assert eventually(lambda: taken_ids(store, token="relay-2")) == [job.id]
    return job


def _published(store: Store, job: NewJob) -> int:
    """Publish the job, by the sweep's leave if need be; how many times the first wait it is now to wait for a claim."""
    if found(store, job.id).state is State.SENT:
        attempt = row_of(job.id, lambda: store.suspects(10))
        assert store.recover(attempt, recovered(attempt))
    assert eventually(lambda: taken_ids(store, token="relay-1")) == [job.id]
    assert store.sent("relay-1", [job.id], SOON) == 1
    row = found(store, job.id)
    assert row.due is not None
    assert row.sent is not None
    return round((row.due - row.sent) / SOON)
