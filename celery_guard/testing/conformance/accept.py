"""How jobs are accepted: what is written, when it is due, and what a batch answers."""

from __future__ import annotations

from datetime import timedelta

import pytest

from celery_guard.job.instant import Instant, instant_to_datetime, microseconds
from celery_guard.job.row import NewJob
from celery_guard.job.state import Kind, Reason, State
from celery_guard.job.verdict import Accepted, Conflict, Duplicate, Granted, NotDue
from celery_guard.store.protocol import Store

from .builders import LONG, NONE, SOON, digest, keyed, new_id, new_job, payload
from .moves import accept, claim, eventually, found, store_now, succeed, take, taken_ids

__all__ = ["TestAccept", "TestDue"]


class TestAccept:
    def test_an_accepted_job_waits_as_new(self, store: Store) -> None:
        job = new_job()
        assert store.enqueue([job]) == [Accepted(job.id)]
        row = found(store, job.id)
        assert (row.state, row.reason, row.owner, row.cancel, row.told) == (
            State.PENDING,
            Reason.NEW,
            None,
            False,
            False,
        )
        assert (row.fence, row.generation, row.attempts, row.crashes, row.retries, row.publications) == (
            0,
            0,
            0,
            0,
            0,
            0,
        )

    def test_what_was_accepted_comes_back(self, store: Store) -> None:
        job = keyed(
            "order 1",
            task="shop.réserver",
            queue="priorité",
            kind=Kind.CARRIED,
            priority=0,
            tenant="acme Ω 🎈",
            parent_id=new_id(),
            root_id=new_id(),
            group_id=new_id(),
            correlation_id="request-7",
            schedule="jede Nacht 🌙",
        )
        accept(store, job)
        row = found(store, job.id)
        for name in ("task", "queue", "kind", "priority", "tenant", "key"):
            assert getattr(row, name) == getattr(job, name), name
        for name in ("parent_id", "root_id", "group_id", "correlation_id", "schedule"):
            assert getattr(row, name) == getattr(job, name), name

    def test_what_was_not_said_stays_unsaid(self, store: Store) -> None:
        job = new_job()
        accept(store, job)
        row = found(store, job.id)
        assert (row.priority, row.tenant, row.key, row.holder, row.deadline, row.keep_until) == (None,) * 6
        assert (row.parent_id, row.root_id, row.group_id, row.correlation_id, row.schedule, row.progress) == (None,) * 6

    @pytest.mark.parametrize("body", [b"", bytes(range(256)) * 5, b"\x00" * 10, "é🎈".encode() * 400_000])
    def test_a_payload_comes_back_byte_for_byte(self, store: Store, body: bytes) -> None:
        message = payload(body, headers='{"naïve": "✓ 🎈 \\u0000", "n": 1.10}', delivery='{"priority": 3,  "x": null}')
        job = new_job(payload=message)
        accept(store, job)
        assert store.payload(job.id) == message
        assert store.payload(job.id, 0) == message
        assert [row.payload for row in take(store)] == [message]

    def test_there_is_no_payload_of_a_generation_that_was_not(self, store: Store) -> None:
        job = new_job()
        accept(store, job)
        assert store.payload(job.id, 1) is None
        assert store.payload(new_id()) is None

    def test_an_empty_batch_accepts_nothing(self, store: Store) -> None:
        assert store.enqueue([]) == []
        assert store.counts() == {}

    def test_answers_come_in_the_order_of_the_jobs(self, store: Store) -> None:
        jobs = [keyed(f"key {number}") if number % 3 else new_job() for number in range(60)]
        assert store.enqueue(jobs) == [Accepted(job.id) for job in jobs]
        again = store.enqueue(jobs[::-1])
        assert again == [Duplicate(job.id, job.id, State.PENDING) for job in jobs[::-1]]

    def test_a_batch_of_a_thousand_is_accepted(self, store: Store) -> None:
        accept(store, *(new_job() for _ in range(1000)))
        assert store.counts() == {State.PENDING: 1000}

    def test_a_refused_job_does_not_keep_the_rest_of_its_batch_out(self, store: Store) -> None:
        held = keyed("held")
        accept(store, held)
        first, last = new_job(), keyed("free")
        twin, rival = keyed("held"), keyed("held", "other")
        assert store.enqueue([first, twin, rival, last]) == [
            Accepted(first.id),
            Duplicate(twin.id, held.id, State.PENDING),
            Conflict(rival.id, held.id, State.PENDING),
            Accepted(last.id),
        ]
        assert store.job(twin.id) is None
        assert store.job(rival.id) is None
        assert store.payload(rival.id) is None
        assert store.counts() == {State.PENDING: 3}

    def test_a_job_is_a_duplicate_of_itself(self, store: Store) -> None:
        job = new_job(fingerprint=digest("this"))
        accept(store, job)
        assert store.enqueue([job]) == [Duplicate(job.id, job.id, State.PENDING)]
        claim(store, job.id)
        assert store.enqueue([job]) == [Duplicate(job.id, job.id, State.RUNNING)]
        assert store.counts() == {State.RUNNING: 1}

    def test_an_id_without_fingerprint_is_a_duplicate_of_itself(self, store: Store) -> None:
        job = new_job()
        accept(store, job)
        assert store.enqueue([job]) == [Duplicate(job.id, job.id, State.PENDING)]

    def test_an_id_with_another_payload_is_a_conflict(self, store: Store) -> None:
        job = new_job(fingerprint=digest("this"), payload=payload(b"this"))
        accept(store, job)
        other = new_job(id=job.id, fingerprint=digest("that"), payload=payload(b"that"))
        assert store.enqueue([other]) == [Conflict(job.id, job.id, State.PENDING)]
        assert store.payload(job.id) == job.payload

    def test_an_id_said_twice_in_one_batch_is_accepted_once(self, store: Store) -> None:
        job = new_job(fingerprint=digest("this"))
        assert store.enqueue([job, job]) == [Accepted(job.id), Duplicate(job.id, job.id, State.PENDING)]

    def test_an_id_that_has_ended_is_a_duplicate_with_its_end(self, store: Store) -> None:
        job = new_job(fingerprint=digest("this"))
        succeed(store, job)
        assert store.enqueue([job]) == [Duplicate(job.id, job.id, State.SUCCEEDED)]

    def test_ids_are_compared_exactly(self, store: Store) -> None:
        ids = [
            "order-1",
            "Order-1",
            "ORDER-1",
            "ord\u00e9r-1",
            "orde\u0301r-1",
            "order-1 ",
            "order-\u0131",
            "order-\u00df",
            "order-ss",
        ]
        jobs = [new_job(id=id, payload=payload(id.encode())) for id in ids]
        accept(store, *jobs)
        assert [store.payload(job.id) for job in jobs] == [job.payload for job in jobs]
        claim(store, "order-1")
        assert [found(store, id).state for id in ids].count(State.RUNNING) == 1
        assert store.job("order-1  ") is None


class TestDue:
    def test_a_job_without_delay_is_due_at_once(self, store: Store) -> None:
        job = new_job()
        accept(store, job)
        assert taken_ids(store) == [job.id]

    def test_a_job_with_a_delay_is_not_due_before_it(self, store: Store) -> None:
        job = new_job(delay=LONG)
        accept(store, job)
        row = found(store, job.id)
        assert row.due is not None
        assert row.due - row.created == LONG
        assert take(store) == []
        assert store.claim(job.id, "worker-1", LONG) == NotDue(job.id, Reason.NEW)
        assert found(store, job.id) == row

    def test_a_job_with_a_delay_becomes_due(self, store: Store) -> None:
        job = new_job(delay=SOON)
        accept(store, job)
        assert eventually(lambda: taken_ids(store)) == [job.id]

    def test_a_job_with_a_delay_may_be_claimed_once_it_is_due(self, store: Store) -> None:
        job = new_job(delay=SOON)
        accept(store, job)
        assert eventually(lambda: isinstance(store.claim(job.id, "worker-1", LONG), Granted))

    def test_a_delay_of_years_is_kept(self, store: Store) -> None:
        job = new_job(delay=timedelta(days=3650), deadline_in=timedelta(days=3651))
        accept(store, job)
        row = found(store, job.id)
        assert row.due is not None
        assert row.deadline is not None
        assert (row.due - row.created, row.deadline - row.created) == (timedelta(days=3650), timedelta(days=3651))

    def test_next_due_says_when_a_relay_has_work(self, store: Store) -> None:
        assert store.next_due() is None
        accept(store, new_job(delay=LONG))
        later = store.next_due()
        assert later is not None
        assert NONE < later <= LONG
        accept(store, new_job())
        now = store.next_due()
        assert now is not None
        assert now <= NONE

    def test_what_has_ended_or_runs_is_not_waited_for(self, store: Store) -> None:
        succeed(store)
        job = new_job()
        accept(store, job)
        claim(store, job.id)
        assert store.next_due() is None

    def test_a_deadline_is_counted_from_acceptance(self, store: Store) -> None:
        job = new_job(deadline_in=LONG)
        accept(store, job)
        row = found(store, job.id)
        assert row.deadline is not None
        assert row.deadline - row.created == LONG

    def test_a_deadline_handed_down_travels_unchanged(self, store: Store) -> None:
        job = new_job(deadline=_instant(store, LONG))
        accept(store, job)
        granted = claim(store, job.id)
        assert granted.deadline == job.deadline
        child = new_job(deadline=granted.deadline)
        accept(store, child)
        assert job.deadline is not None
        assert found(store, child.id).deadline == instant_to_datetime(job.deadline)

    @pytest.mark.parametrize(("handed", "own"), [(LONG, 2 * LONG), (2 * LONG, LONG)])
    def test_the_earlier_of_two_deadlines_counts(self, store: Store, handed: timedelta, own: timedelta) -> None:
        job = new_job(deadline=_instant(store, handed), deadline_in=own)
        accept(store, job)
        granted = claim(store, job.id)
        assert granted.remaining is not None
        assert LONG / 2 < granted.remaining <= LONG

    def test_a_job_without_deadline_has_none(self, store: Store) -> None:
        job: NewJob = new_job()
        accept(store, job)
        granted = claim(store, job.id)
        assert (granted.remaining, granted.deadline) == (None, None)

    def test_a_job_over_its_deadline_is_taken_and_flagged(self, store: Store) -> None:
        late, timely = new_job(deadline_in=SOON), new_job(deadline_in=LONG)
        accept(store, late, timely)
        row = found(store, late.id)
        eventually(lambda: row.deadline is not None and store_now(store) > row.deadline)
        assert {out.id: out.expired for out in take(store)} == {late.id: True, timely.id: False}

    def test_a_job_over_its_deadline_is_granted_with_nothing_remaining(self, store: Store) -> None:
        job = new_job(deadline_in=NONE)
        accept(store, job)
        granted = claim(store, job.id)
        assert granted.remaining is not None
        assert granted.remaining <= NONE


def _instant(store: Store, ahead: timedelta) -> Instant:
    """An instant of the store's clock, as a parent would hand it down."""
    return Instant(microseconds(store_now(store) - instant_to_datetime(Instant(0))) + microseconds(ahead))
