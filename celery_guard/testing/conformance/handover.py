"""A job that hands itself over to others, the last of whom brings its id back: one job, of another generation."""

from __future__ import annotations

from typing import Any

from celery_guard.job.row import NewJob
from celery_guard.job.state import Reason, State
from celery_guard.job.verdict import Accepted, Conflict, Duplicate, NotDue
from celery_guard.store.protocol import Store

from .builders import LONG, SOON, digest, handed_over, keyed, new_job, payload, retried, succeeded
from .crowd import together
from .moves import accept, claim, eventually, found, start, take, taken_ids

__all__ = ["TestHandover"]


def _back(job: NewJob, **given: Any) -> NewJob:
    """The message that brings the id of a job back."""
    message = payload(b"second \xff", '{"é": 2}')
    return new_job(id=job.id, **{"payload": message, "fingerprint": digest("another call"), **given})


class TestHandover:
    def test_a_job_that_was_handed_over_waits(self, store: Store) -> None:
        job, first = new_job(), new_job()
        granted = start(store, job)
        assert store.settle(handed_over(granted, follow=(first,)))
        assert taken_ids(store) == [first.id]
        assert store.claim(job.id, "worker-2", LONG) == NotDue(job.id, Reason.HANDED_OVER)
        assert found(store, job.id).attempts == 0

    def test_an_id_that_comes_back_carries_on_with_its_message(self, store: Store) -> None:
        job = new_job(fingerprint=digest("a call"))
        assert store.settle(handed_over(start(store, job)))
        back = _back(job, task="shop.ship", queue="slow")
        assert store.enqueue([back]) == [Accepted(job.id)]
        [row] = take(store)
        assert (row.id, row.generation, row.payload) == (job.id, 1, back.payload)
        assert (row.task, row.queue, row.reason) == ("shop.ship", "slow", Reason.REPLACED)
        assert store.payload(job.id, 0) == job.payload
        granted = claim(store, job.id)
        assert (granted.fence, granted.generation, granted.attempts) == (2, 1, 1)
        assert store.settle(succeeded(granted))

    def test_an_id_that_comes_back_later_waits_for_its_delay(self, store: Store) -> None:
        job = new_job()
        assert store.settle(handed_over(start(store, job)))
        assert store.enqueue([_back(job, delay=LONG)]) == [Accepted(job.id)]
        assert take(store) == []

    def test_an_id_comes_back_once(self, store: Store) -> None:
        job = new_job(fingerprint=digest("a call"))
        assert store.settle(handed_over(start(store, job)))
        # a message each: one that is repeated after a deadlock is told from those of others by what it says
        backs = [_back(job, payload=payload(f"{number}".encode())) for number in range(4)]
        answers = together(4, lambda number: store.enqueue([backs[number]])[0])
        assert answers.count(Accepted(job.id)) == 1
        assert all(isinstance(answer, Duplicate | Conflict | Accepted) for answer in answers)
        [row] = take(store)
        assert (row.generation, row.payload) == (1, backs[answers.index(Accepted(job.id))].payload)

    def test_a_job_that_was_handed_over_keeps_its_key(self, store: Store) -> None:
        job, twin = keyed("order 1"), keyed("order 1")
        assert store.settle(handed_over(start(store, job)))
        assert store.enqueue([twin]) == [Duplicate(twin.id, job.id, State.PENDING)]
        assert store.enqueue([_back(job)]) == [Accepted(job.id)]
        assert store.enqueue([twin]) == [Duplicate(twin.id, job.id, State.PENDING)]

    def test_a_job_that_comes_back_with_what_follows_carries_on(self, store: Store) -> None:
        job, first = new_job(), new_job()
        assert store.settle(handed_over(start(store, job), follow=(first,)))
        granted = claim(store, first.id)
        assert store.settle(succeeded(granted, follow=(_back(job),)))
        assert taken_ids(store) == [job.id]

    def test_a_job_that_never_comes_back_is_not_forgotten(self, store: Store) -> None:
        job = new_job()
        assert store.settle(handed_over(start(store, job), delay=SOON))
        assert eventually(lambda: taken_ids(store)) == [job.id]

    def test_an_id_that_waits_for_something_else_does_not_come_back(self, store: Store) -> None:
        job = new_job(fingerprint=digest("a call"))
        assert store.settle(retried(start(store, job), delay=LONG))
        assert store.enqueue([_back(job)]) == [Conflict(job.id, job.id, State.PENDING)]
        assert found(store, job.id).generation == 0
        other = new_job()
        accept(store, other)
        assert taken_ids(store) == [other.id]
