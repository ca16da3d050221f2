"""How jobs are accepted in a caller's own transaction: with it, or not at all."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from concurrent.futures import TimeoutError as NotYet
from contextlib import suppress
from dataclasses import replace

import pytest

from celery_guard.errors import GuardError, StoreUnavailableError, WrongDatabaseError
from celery_guard.job.row import NewJob
from celery_guard.job.state import State
from celery_guard.job.verdict import Accepted, Busy, Conflict, Duplicate, Enqueued
from celery_guard.store.door import AttemptDoor
from celery_guard.store.protocol import Door, Store

from .builders import LONG, handed_over, keyed, new_id, new_job, payload
from .crowd import together
from .moves import accept, claim, eventually, found, lease_of, start, succeed, take, taken_ids
from .subject import Caller, Callers, Subject

__all__ = ["TestDoors", "TestOpenTransactions"]


class _Undo(Exception):
    """Raised by a test to leave a savepoint."""


def _enqueue(store: Store, caller: Caller, *jobs: NewJob) -> list[Enqueued]:
    return store.door(caller.transaction).enqueue(jobs)


def _look(store: Store, caller: Caller) -> None:
    """Have the transaction see what is there now. Some go on seeing just that."""
    door = store.door(caller.transaction)
    if not isinstance(door, AttemptDoor):
        pytest.skip("nothing can be looked at through this door")
    assert door.outcome(new_id()) is None


class TestDoors:
    def test_a_job_is_there_once_the_transaction_commits(self, store: Store, caller: Callers) -> None:
        job, program = keyed("order 1", payload=payload(bytes(range(256)))), caller()
        program.write("order 1")
        assert _enqueue(store, program, job) == [Accepted(job.id)]
        program.commit()
        assert store.payload(job.id) == job.payload
        assert taken_ids(store) == [job.id]
        assert caller.written() == ["order 1"]

    def test_a_job_is_not_there_before_the_transaction_commits(
        self, store: Store, caller: Callers, subject: Subject
    ) -> None:
        job, program = new_job(), caller()
        assert _enqueue(store, program, job) == [Accepted(job.id)]
        assert store.job(job.id) is None
        if subject.concurrent:
            assert take(store) == []
        program.commit()
        assert taken_ids(store) == [job.id]

    def test_a_transaction_that_rolls_back_leaves_no_job(self, store: Store, caller: Callers) -> None:
        jobs, program = [new_job(), keyed("order 1")], caller()
        program.write("order 1")
        assert _enqueue(store, program, *jobs) == [Accepted(job.id) for job in jobs]
        program.rollback()
        assert store.counts() == {}
        assert take(store) == []
        assert [store.payload(job.id) for job in jobs] == [None, None]
        assert caller.written() == []
        accept(store, *jobs)

    def test_a_savepoint_that_rolls_back_takes_only_its_own(self, store: Store, caller: Callers) -> None:
        kept, undone, program = new_job(), keyed("order 1"), caller()
        assert _enqueue(store, program, kept) == [Accepted(kept.id)]
        with suppress(_Undo), program.savepoint():
            program.write("undone")
            assert _enqueue(store, program, undone) == [Accepted(undone.id)]
            raise _Undo
        program.write("kept")
        program.commit()
        assert taken_ids(store) == [kept.id]
        assert store.job(undone.id) is None
        assert caller.written() == ["kept"]

    def test_a_savepoint_that_is_released_keeps_its_own(self, store: Store, caller: Callers) -> None:
        job, program = keyed("order 1"), caller()
        with program.savepoint():
            assert _enqueue(store, program, job) == [Accepted(job.id)]
        program.commit()
        assert taken_ids(store) == [job.id]

    def test_a_job_of_a_nested_savepoint_goes_with_the_outer_one(self, store: Store, caller: Callers) -> None:
        job, program = new_job(), caller()
        with suppress(_Undo), program.savepoint():
            with program.savepoint():
                assert _enqueue(store, program, job) == [Accepted(job.id)]
            raise _Undo
        program.commit()
        assert store.counts() == {}

    def test_a_conflict_leaves_the_transaction_usable(self, store: Store, caller: Callers) -> None:
        holder, rival, free, program = keyed("order 1"), keyed("order 1", "another amount"), keyed("order 2"), caller()
        accept(store, holder)
        program.write("before")
        assert _enqueue(store, program, rival) == [Conflict(rival.id, holder.id, State.PENDING)]
        program.write("after")
        assert _enqueue(store, program, free) == [Accepted(free.id)]
        program.commit()
        assert sorted(caller.written()) == ["after", "before"]
        assert sorted(taken_ids(store)) == sorted([holder.id, free.id])

    def test_a_duplicate_leaves_the_transaction_usable(self, store: Store, caller: Callers) -> None:
        holder, twin, program = keyed("order 1"), keyed("order 1"), caller()
        succeed(store, holder)
        assert _enqueue(store, program, twin) == [Duplicate(twin.id, holder.id, State.SUCCEEDED)]
        program.write("after")
        program.commit()
        assert caller.written() == ["after"]
        assert store.job(twin.id) is None

    def test_a_transaction_meets_its_own_keys(self, store: Store, caller: Callers) -> None:
        first, twin, rival, program = keyed("order 1"), keyed("order 1"), keyed("order 1", "another amount"), caller()
        assert _enqueue(store, program, first) == [Accepted(first.id)]
        assert _enqueue(store, program, twin) == [Duplicate(twin.id, first.id, State.PENDING)]
        assert _enqueue(store, program, rival) == [Conflict(rival.id, first.id, State.PENDING)]
        program.commit()
        assert taken_ids(store) == [first.id]

    def test_a_follower_may_be_accepted_with_its_holder(self, store: Store, caller: Callers) -> None:
        first, follower, program = keyed("order 1"), keyed("order 1", in_canvas=True), caller()
        assert _enqueue(store, program, first) == [Accepted(first.id)]
        assert _enqueue(store, program, follower) == [Accepted(follower.id, holder=first.id)]
        program.commit()
        assert taken_ids(store) == [first.id]

    def test_a_job_that_was_handed_over_comes_back_with_the_transaction(self, store: Store, caller: Callers) -> None:
        job, program = new_job(), caller()
        assert store.settle(handed_over(start(store, job)))
        back = new_job(id=job.id, payload=payload(b"second"))
        assert _enqueue(store, program, back) == [Accepted(job.id)]
        program.rollback()
        assert take(store) == []
        assert (found(store, job.id).generation, store.payload(job.id, 1)) == (0, None)
        assert _enqueue(store, program, back) == [Accepted(job.id)]
        program.commit()
        assert [row.payload for row in take(store)] == [back.payload]

    def test_a_door_serves_a_whole_transaction(self, store: Store, caller: Callers) -> None:
        jobs, program = [new_job() for _ in range(5)], caller()
        door = store.door(program.transaction)
        assert isinstance(door, Door)
        for job in jobs:
            assert door.enqueue([job]) == [Accepted(job.id)]
        program.commit()
        assert sorted(taken_ids(store)) == sorted(job.id for job in jobs)

    def test_a_batch_goes_through_a_door_as_one(self, store: Store, caller: Callers) -> None:
        jobs, program = [keyed(f"order {number}") for number in range(100)], caller()
        assert _enqueue(store, program, *jobs) == [Accepted(job.id) for job in jobs]
        assert _enqueue(store, program) == []
        program.commit()
        assert store.counts() == {State.PENDING: 100}

    def test_a_caller_may_go_on_to_another_transaction(self, store: Store, caller: Callers) -> None:
        first, second, program = new_job(), new_job(), caller()
        assert _enqueue(store, program, first) == [Accepted(first.id)]
        program.rollback()
        assert _enqueue(store, program, second) == [Accepted(second.id)]
        program.commit()
        assert taken_ids(store) == [second.id]

    @pytest.mark.parametrize("guarded", [False, True], ids=["that knows no guard", "with a store of its own"])
    def test_another_database_is_refused(self, store: Store, caller: Callers, guarded: bool) -> None:
        program = caller.stranger(guarded=guarded)
        program.write("before")
        with pytest.raises(WrongDatabaseError):
            _enqueue(store, program, new_job())
        program.rollback()
        assert store.counts() == {}

    @pytest.mark.parametrize("thing", [None, "a string", 7, object()], ids=["None", "a string", "7", "an object"])
    def test_what_is_no_transaction_is_refused(self, store: Store, thing: object) -> None:
        with pytest.raises(TypeError):
            store.door(thing)

    def test_a_connection_that_commits_by_itself_is_safe(self, store: Store, caller: Callers) -> None:
        job, follower = keyed("order 1", payload=payload(b"\x00\xff")), keyed("order 1", in_canvas=True)
        program = caller.autocommitting()
        assert _enqueue(store, program, job) == [Accepted(job.id)]
        assert store.payload(job.id) == job.payload
        assert [row.payload for row in take(store)] == [job.payload]
        assert _enqueue(store, program, follower) == [Accepted(follower.id, holder=job.id)]
        claim(store, job.id)


class TestOpenTransactions:
    @pytest.fixture(autouse=True)
    def _concurrent(self, subject: Subject) -> None:
        if not subject.concurrent:
            pytest.skip(f"{subject.name} has one writing transaction at a time")

    def test_rows_committed_out_of_order_are_not_skipped(self, store: Store, caller: Callers) -> None:
        slow, quick, late, early = caller(), caller(), new_job(), new_job()
        assert _enqueue(store, slow, late) == [Accepted(late.id)]
        assert _enqueue(store, quick, early) == [Accepted(early.id)]
        quick.commit()
        assert taken_ids(store) == [early.id]
        slow.commit()
        assert taken_ids(store) == [late.id]

    def test_a_key_that_was_taken_since_the_transaction_looked_is_met_in_it(
        self, store: Store, caller: Callers
    ) -> None:
        holder, twin, rival, program = keyed("order 1"), keyed("order 1"), keyed("order 1", "another amount"), caller()
        program.write("before")
        _look(store, program)
        accept(store, holder)
        assert _enqueue(store, program, twin) == [Duplicate(twin.id, holder.id, State.PENDING)]
        assert _enqueue(store, program, rival) == [Conflict(rival.id, holder.id, State.PENDING)]
        program.write("after")
        program.commit()
        assert sorted(caller.written()) == ["after", "before"]
        assert taken_ids(store) == [holder.id]

    def test_a_job_that_was_handed_over_since_the_transaction_looked_comes_back_with_it(
        self, store: Store, caller: Callers
    ) -> None:
        job, program = new_job(), caller()
        program.write("before")
        _look(store, program)
        assert store.settle(handed_over(start(store, job)))
        back = new_job(id=job.id, payload=payload(b"second"))
        assert _enqueue(store, program, back) == [Accepted(job.id)]
        program.commit()
        assert caller.written() == ["before"]
        assert [row.payload for row in take(store)] == [back.payload]

    def test_an_open_transaction_does_not_hinder_others(self, store: Store, caller: Callers) -> None:
        program, mine, other = caller(), keyed(new_id()), keyed(new_id())
        assert _enqueue(store, program, mine) == [Accepted(mine.id)]
        accept(store, other)
        assert taken_ids(store) == [other.id]
        claim(store, other.id)
        assert store.retain(10) == 0
        assert store.lapsed(10) == store.suspects(10) == []
        assert store.counts() == {State.RUNNING: 1}
        program.commit()
        assert taken_ids(store) == [mine.id]

    def test_a_key_that_an_open_transaction_takes_is_not_given_twice(
        self, store: Store, caller: Callers, subject: Subject
    ) -> None:
        program, first, twin = caller(), keyed("order 1"), keyed("order 1")
        assert _enqueue(store, program, first) == [Accepted(first.id)]
        answer = _meanwhile(store, twin, program.commit, subject)
        assert answer in (Busy(twin.id), Duplicate(twin.id, first.id, State.PENDING), None)
        assert eventually(lambda: store.enqueue([twin])) == [Duplicate(twin.id, first.id, State.PENDING)]
        assert store.counts() == {State.PENDING: 1}

    def test_a_key_that_an_open_transaction_gave_up_is_free(
        self, store: Store, caller: Callers, subject: Subject
    ) -> None:
        program, first, twin = caller(), keyed("order 1"), keyed("order 1", "another amount")
        assert _enqueue(store, program, first) == [Accepted(first.id)]
        answer = _meanwhile(store, twin, program.rollback, subject)
        assert answer in (Busy(twin.id), Accepted(twin.id), None)
        if answer != Accepted(twin.id):
            accept(store, twin)
        assert found(store, twin.id).state is State.PENDING
        assert store.job(first.id) is None

    def test_a_busy_key_leaves_the_second_transaction_usable(
        self, store: Store, caller: Callers, subject: Subject
    ) -> None:
        if not subject.busy:
            pytest.skip(f"{subject.name} waits for the first transaction")
        first, second, mine, other = caller(), caller(), keyed("order 1"), keyed("order 2")
        assert _enqueue(store, first, mine) == [Accepted(mine.id)]
        twin = keyed("order 1")
        assert _enqueue(store, second, twin, other) == [Busy(twin.id), Accepted(other.id)]
        second.write("after")
        second.commit()
        first.rollback()
        assert caller.written() == ["after"]
        assert taken_ids(store) == [other.id]
        accept(store, twin)

    def test_callers_who_want_each_others_keys_come_to_an_end(
        self, store: Store, caller: Callers, subject: Subject
    ) -> None:
        programs, jobs = [caller(), caller()], [keyed(new_id()), keyed(new_id())]
        for program, job in zip(programs, jobs, strict=True):
            assert _enqueue(store, program, job) == [Accepted(job.id)]
        twins = [replace(job, id=new_id()) for job in jobs]

        def cross(number: int) -> object:
            try:
                return _enqueue(store, programs[number], twins[1 - number])[0]
            except Exception as error:  # noqa: BLE001  (whatever the database says, it is looked at below)
                return error

        answers = together(2, cross)
        for program in programs:
            program.rollback()
        if subject.busy:
            assert answers == [Busy(twins[1].id), Busy(twins[0].id)]
        errors = [answer for answer in answers if isinstance(answer, Exception)]
        assert len(errors) < 2
        assert not any(isinstance(error, GuardError) for error in errors), "the database's own error goes up unchanged"
        assert store.counts() == {}
        accept(store, *twins)

    def test_a_claim_does_not_wait_for_an_open_transaction_that_met_the_key(
        self, store: Store, caller: Callers
    ) -> None:
        holder, program = keyed("order 1"), caller()
        accept(store, holder)
        [verdict] = _enqueue(store, program, keyed("order 1"))
        assert isinstance(verdict, Duplicate)
        assert store.renew([lease_of(claim(store, holder.id))], LONG)
        program.commit()


def _meanwhile(store: Store, twin: NewJob, end: object, subject: Subject) -> Enqueued | None:
    """Enqueue the twin while the holder of its key is not committed, then end that; None: the store gave up waiting."""
    assert callable(end)
    with ThreadPoolExecutor(1) as pool:
        answer = pool.submit(store.enqueue, [twin])
        if subject.busy:
            assert answer.result(30) == [Busy(twin.id)]
        else:
            with suppress(NotYet, StoreUnavailableError):
                answer.result(0.2)
        end()
        try:
            [verdict] = answer.result(60)
        except StoreUnavailableError:
            return None
        return verdict
