"""Transactions of bodies: what a body writes, what it enqueues and its job's end, all of it or nothing."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from celery_guard.job.state import State
from celery_guard.job.verdict import Accepted
from celery_guard.store.protocol import Store, Transaction

from .builders import LONG, dead, keyed, new_job, payload, result, retried, succeeded
from .moves import claim, eventually, found, lapse, lease_of, lose, start, take, taken_ids
from .subject import Callers, Subject

__all__ = ["TestBodies"]


class TestBodies:
    @pytest.fixture
    def body(self, store: Store) -> Iterator[Transaction]:
        """The transaction of a body; undone at the end, if the test has not ended it."""
        if "G5" in store.limits:
            with pytest.raises(NotImplementedError):
                store.begin()
            pytest.skip(f"the store does not keep G5: {store.limits['G5']}")
        with ExitStack() as undoing:
            one = store.begin()
            undoing.callback(one.rollback)
            yield one

    def test_all_of_a_body_is_there_once_it_commits(self, store: Store, body: Transaction, caller: Callers) -> None:
        granted, job, follow = start(store), new_job(payload=payload(b"\xff")), new_job()
        caller.write_with(body.session, "paid")
        assert body.door.enqueue([job]) == [Accepted(job.id)]
        assert body.commit(succeeded(granted, result=result(b"[1]"), follow=(follow,))) is True
        assert caller.written() == ["paid"]
        assert store.outcome(granted.id) == (State.SUCCEEDED, result(b"[1]"), None)
        assert sorted(taken_ids(store)) == sorted([job.id, follow.id])
        assert store.payload(job.id) == job.payload

    def test_nothing_of_a_body_is_there_before_it_commits(
        self, store: Store, body: Transaction, caller: Callers
    ) -> None:
        granted, job = start(store), new_job()
        caller.write_with(body.session, "paid")
        body.door.enqueue([job])
        assert caller.written() == []
        assert store.job(job.id) is None
        assert found(store, granted.id).state is State.RUNNING

    def test_nothing_of_a_stale_body_is_kept(self, store: Store, body: Transaction, caller: Callers) -> None:
        stale = lose(store)
        fresh, job, follow = claim(store, stale.id), new_job(), new_job()
        caller.write_with(body.session, "paid twice")
        body.door.enqueue([job])
        assert body.commit(succeeded(stale, follow=(follow,))) is False
        assert caller.written() == []
        assert (store.job(job.id), store.job(follow.id), store.payload(job.id)) == (None, None, None)
        assert store.outcome(stale.id) == (State.RUNNING, None, None)
        assert store.settle(succeeded(fresh))

    def test_of_two_bodies_of_one_job_one_is_kept(self, store: Store, body: Transaction, caller: Callers) -> None:
        stale = lose(store)
        caller.write_with(body.session, "first")
        body.commit(succeeded(stale))
        fresh = store.claim(stale.id, "worker-2", LONG)
        second = store.begin()
        caller.write_with(second.session, "second")
        assert second.commit(succeeded(stale, result=result(b"2"))) is False
        assert caller.written() == ["first"]
        assert found(store, fresh.id).state is State.SUCCEEDED

    def test_a_late_body_is_kept_while_nobody_took_its_job(
        self, store: Store, body: Transaction, caller: Callers
    ) -> None:
        granted, _ = lapse(store)
        caller.write_with(body.session, "late")
        assert body.commit(succeeded(granted)) is True
        assert caller.written() == ["late"]

    def test_a_body_that_is_undone_leaves_its_job_as_it_was(
        self, store: Store, body: Transaction, caller: Callers
    ) -> None:
        granted, job = start(store), keyed("order 1")
        before = found(store, granted.id)
        caller.write_with(body.session, "paid")
        body.door.enqueue([job])
        body.rollback()
        assert caller.written() == []
        assert store.job(job.id) is None
        assert found(store, granted.id) == before
        assert store.settle(retried(granted))

    def test_undoing_never_raises(self, store: Store, body: Transaction) -> None:
        body.rollback()
        body.rollback()
        granted = start(store)
        another = store.begin()
        assert another.commit(succeeded(granted))
        another.rollback()
        assert found(store, granted.id).state is State.SUCCEEDED

    def test_a_body_that_wrote_nothing_may_commit(self, store: Store, body: Transaction) -> None:
        granted = start(store)
        assert body.commit(succeeded(granted)) is True
        assert found(store, granted.id).state is State.SUCCEEDED

    def test_followers_are_released_by_a_body_that_commits(self, store: Store, body: Transaction) -> None:
        granted, follower = start(store, keyed("order 1")), keyed("order 1", in_canvas=True)
        assert store.enqueue([follower]) == [Accepted(follower.id, holder=granted.id)]
        assert take(store) == []
        assert body.commit(dead(granted)) is True
        assert eventually(lambda: taken_ids(store)) == [follower.id]

    def test_a_lease_is_renewed_while_a_body_is_open(
        self, store: Store, body: Transaction, caller: Callers, subject: Subject
    ) -> None:
        if not subject.concurrent:
            pytest.skip(f"{subject.name} has one writing transaction at a time")
        granted, job = start(store), new_job()
        caller.write_with(body.session, "paid")
        body.door.enqueue([job])
        assert store.renew([lease_of(granted)], LONG)
        assert store.cancel(granted.id).answer == "asked"
        assert body.commit(succeeded(granted)) is True
        assert caller.written() == ["paid"]
