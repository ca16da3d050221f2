"""How an attempt's end is written: by the owner only, all of it or nothing."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from celery_guard.job.row import StoredPayload, StoredResult
from celery_guard.job.settlement import Settlement
from celery_guard.job.state import Reason, State
from celery_guard.job.verdict import Accepted, Conflict
from celery_guard.store.protocol import Store

from .builders import (
    LONG,
    SOON,
    dead,
    failure,
    keyed,
    new_id,
    new_job,
    payload,
    result,
    retried,
    succeeded,
)
from .moves import accept, claim, eventually, found, lapse, lose, start, take, taken_ids

__all__ = ["TestLate", "TestSettle", "TestSettleFailure", "TestSettleFollow"]

_BODIES = [b"", b"null", bytes(range(256)), b"\x00" * 3000, "é🎈".encode() * 1000, b"x" * 2_000_000]


class TestSettle:
    @pytest.mark.parametrize("body", _BODIES, ids=len)
    def test_a_result_comes_back_byte_for_byte(self, store: Store, body: bytes) -> None:
        granted = start(store)
        value = result(body)
        assert store.settle(succeeded(granted, result=value))
        assert store.outcome(granted.id) == (State.SUCCEEDED, value, None)

    def test_how_a_result_is_encoded_comes_back(self, store: Store) -> None:
        granted = start(store)
        value = StoredResult(body=b"\x81", content_type="application/x-msgpack", content_encoding="binary")
        assert store.settle(succeeded(granted, result=value))
        assert store.outcome(granted.id) == (State.SUCCEEDED, value, None)

    def test_a_job_may_succeed_without_a_stored_result(self, store: Store) -> None:
        granted = start(store)
        assert store.settle(succeeded(granted, result=None))
        assert store.outcome(granted.id) == (State.SUCCEEDED, None, None)

    @pytest.mark.parametrize("more", [{}, {"result": None}, {"crashed": True}, {"told": False}], ids=str)
    def test_a_success_takes_back_why_earlier_attempts_failed_and_keeps_their_number(
        self, store: Store, more: dict[str, Any]
    ) -> None:
        granted = start(store)
        again = {"failure": failure(), "crashed": True, "interrupted": True}
        assert store.settle(retried(granted, **again))
        row = found(store, granted.id)
        assert (row.reason, row.failure_class, row.cause) == (Reason.RETRY, "permanent", "c0ffee")
        assert store.settle(succeeded(claim(store, granted.id), interrupted=False, **more))
        row = found(store, granted.id)
        assert (row.state, row.reason, row.failure_class, row.cause) == (State.SUCCEEDED, None, None, None)
        crashes = 2 if "crashed" in more else 1
        assert (row.attempts, row.crashes, row.retries, row.interruptions) == (2, crashes, 1, 0)
        assert (row.told, row.due is None) == (more.get("told", True),) * 2

    def test_a_job_that_runs_has_no_outcome_yet(self, store: Store) -> None:
        granted = start(store)
        assert store.outcome(granted.id) == (State.RUNNING, None, None)
        assert store.outcome(new_id()) is None

    def test_an_ended_job_is_kept_for_as_long_as_was_said(self, store: Store) -> None:
        granted = start(store)
        assert store.settle(succeeded(granted, keep=timedelta(days=3)))
        row = found(store, granted.id)
        assert row.finished is not None
        assert row.keep_until is not None
        assert row.keep_until - row.finished == timedelta(days=3)

    def test_a_job_that_has_ended_and_was_told_is_never_due(self, store: Store) -> None:
        granted = start(store)
        assert store.settle(succeeded(granted, told=True))
        row = found(store, granted.id)
        assert (row.due, row.told, row.state) == (None, True, State.SUCCEEDED)
        assert take(store) == []
        assert store.next_due() is None

    @pytest.mark.parametrize("reason", [Reason.RETRY, Reason.INTERRUPTED, Reason.HELD_LIMIT, Reason.HELD_VERSION])
    def test_a_job_that_waits_again_says_why_and_until_when(self, store: Store, reason: Reason) -> None:
        granted = start(store)
        assert store.settle(retried(granted, reason=reason, delay=LONG))
        row = found(store, granted.id)
        assert (row.state, row.reason) == (State.PENDING, reason)
        assert take(store) == []
        due = store.next_due()
        assert due is not None
        assert LONG / 2 < due <= LONG

    def test_a_retry_becomes_due(self, store: Store) -> None:
        granted = start(store)
        assert store.settle(retried(granted, delay=SOON))
        [row] = eventually(lambda: take(store))
        assert (row.id, row.reason, row.retries, row.generation) == (granted.id, Reason.RETRY, 1, 0)

    def test_a_new_payload_is_the_next_generation(self, store: Store) -> None:
        job = new_job(payload=payload(b"first"))
        granted = start(store, job)
        second = StoredPayload(b"second \xff", '{"retries": 1}', '{"priority": 3}')
        assert store.settle(retried(granted, payload=second))
        [row] = take(store)
        assert (row.generation, row.payload) == (1, second)
        assert claim(store, job.id).generation == 1
        assert store.payload(job.id) == second
        assert store.payload(job.id, 1) == second
        assert store.payload(job.id, 0) == job.payload

    def test_without_a_new_payload_the_generation_stays(self, store: Store) -> None:
        job = new_job(payload=payload(b"first"))
        granted = start(store, job)
        assert store.settle(retried(granted))
        [row] = take(store)
        assert (row.generation, row.payload) == (0, job.payload)

    def test_generations_go_on_after_a_replay(self, store: Store) -> None:
        granted = start(store)
        assert store.settle(retried(granted, payload=payload(b"1")))
        assert store.settle(dead(claim(store, granted.id)))
        store.replay([granted.id])
        [row] = take(store)
        assert row.payload == payload(b"1")
        assert store.settle(retried(claim(store, granted.id), payload=payload(b"2")))
        assert [row.payload for row in take(store)] == [payload(b"2")]
        assert store.payload(granted.id, 1) == payload(b"1")

    def test_an_attempt_is_settled_once(self, store: Store) -> None:
        granted = start(store)
        assert store.settle(retried(granted))
        assert store.settle(succeeded(granted)) is False
        assert found(store, granted.id).state is State.PENDING
        assert store.outcome(granted.id) == (State.PENDING, None, None)

    def test_success_is_never_replaced(self, store: Store) -> None:
        granted = start(store)
        assert store.settle(succeeded(granted, result=result(b"1")))
        for other in (dead(granted), retried(granted), dead(granted, state=State.CANCELLED, reason=None)):
            assert store.settle(other) is False
        assert store.settle(succeeded(granted, result=result(b"2"))) in (True, False)
        assert store.outcome(granted.id) == (State.SUCCEEDED, result(b"1"), None)

    def test_death_is_not_replaced_by_its_own_attempt(self, store: Store) -> None:
        granted = start(store)
        assert store.settle(dead(granted))
        assert store.settle(succeeded(granted)) is False
        assert found(store, granted.id).state is State.DEAD

    def test_nobody_settles_for_another_owner(self, store: Store) -> None:
        granted = start(store, owner="worker-1")
        stranger = replace(granted, owner="worker-2")
        assert store.settle(succeeded(stranger)) is False
        assert found(store, granted.id).state is State.RUNNING

    @pytest.mark.parametrize("by", [-1, 1])
    def test_nobody_settles_under_another_fence(self, store: Store, by: int) -> None:
        granted = start(store)
        assert store.settle(succeeded(replace(granted, fence=granted.fence + by))) is False
        assert found(store, granted.id).state is State.RUNNING

    def test_nobody_settles_what_was_never_claimed(self, store: Store) -> None:
        granted = start(store)
        waiting = new_job()
        accept(store, waiting)
        for fence in (0, 1):
            stranger = replace(granted, id=waiting.id, fence=fence)
            assert store.settle(succeeded(stranger)) is False
        assert found(store, waiting.id).state is State.PENDING
        assert store.settle(succeeded(replace(granted, id=new_id()))) is False


class TestLate:
    def test_a_late_owner_settles_while_nobody_took_the_job(self, store: Store) -> None:
        granted, _ = lapse(store)
        assert store.settle(succeeded(granted))
        assert found(store, granted.id).state is State.SUCCEEDED
        assert store.lapsed(10) == []

    def test_a_late_owner_settles_a_job_that_waits_to_be_sent_again(self, store: Store) -> None:
        granted = lose(store)
        assert store.settle(succeeded(granted))
        assert store.outcome(granted.id) == (State.SUCCEEDED, result(), None)
        assert take(store) == []

    def test_a_late_owner_settles_a_job_that_was_sent_again(self, store: Store) -> None:
        granted = lose(store)
        take(store, "relay-1")
        assert store.sent("relay-1", [granted.id], SOON) == 1
        assert store.settle(succeeded(granted))
        assert found(store, granted.id).state is State.SUCCEEDED
        assert store.suspects(10) == []

    def test_a_relay_does_not_send_what_a_late_owner_has_settled(self, store: Store) -> None:
        granted = lose(store)
        take(store, "relay-1")
        assert store.settle(succeeded(granted))
        store.sent("relay-1", [granted.id], SOON)
        assert found(store, granted.id).state is State.SUCCEEDED
        assert taken_ids(store) == []

    @pytest.mark.parametrize("end", [succeeded, dead, retried])
    def test_a_stale_attempt_cannot_settle(self, store: Store, end: Callable[..., Settlement]) -> None:
        stale = lose(store)
        fresh = claim(store, stale.id, "worker-2")
        before = found(store, stale.id)
        assert store.settle(end(stale, payload=payload(b"stale"))) is False
        assert found(store, stale.id) == before
        assert store.outcome(stale.id) == (State.RUNNING, None, None)
        assert store.payload(stale.id, 1) is None
        assert store.settle(succeeded(fresh))

    def test_a_stale_attempt_of_the_same_owner_cannot_settle(self, store: Store) -> None:
        stale = lose(store, owner="worker-1")
        claim(store, stale.id, "worker-1")
        assert store.settle(succeeded(stale)) is False

    def test_a_late_owner_cannot_settle_what_the_sweep_has_ended(self, store: Store) -> None:
        granted, attempt = lapse(store)
        end = dead(granted, reason=Reason.CRASHED)
        assert store.recover(attempt, end)
        assert store.settle(succeeded(granted)) is False
        assert found(store, granted.id).state is State.DEAD

    def test_a_late_owner_cannot_settle_a_cancelled_job(self, store: Store) -> None:
        granted = lose(store)
        assert store.cancel(granted.id).answer == "cancelled"
        assert store.settle(succeeded(granted)) is False
        assert found(store, granted.id).state is State.CANCELLED


class TestSettleFollow:
    def test_what_follows_is_accepted_with_the_settlement(self, store: Store) -> None:
        granted = start(store)
        first = new_job(parent_id=granted.id, payload=payload(b"next"))
        second = new_job(parent_id=granted.id, delay=LONG)
        assert store.settle(succeeded(granted, follow=(first, second)))
        [row] = take(store)
        assert (row.id, row.payload, row.reason) == (first.id, first.payload, Reason.NEW)
        assert found(store, second.id).parent_id == granted.id

    def test_what_follows_a_stale_attempt_is_not_accepted(self, store: Store) -> None:
        stale = lose(store)
        claim(store, stale.id, "worker-2")
        follow = new_job(parent_id=stale.id)
        assert store.settle(succeeded(stale, follow=(follow,))) is False
        assert store.job(follow.id) is None
        assert store.payload(follow.id) is None
        assert store.counts() == {State.RUNNING: 1}

    def test_what_was_accepted_before_does_not_hinder_the_settlement(self, store: Store) -> None:
        granted = start(store)
        known, fresh = new_job(), new_job()
        accept(store, known)
        assert store.settle(succeeded(granted, follow=(known, fresh)))
        assert store.counts() == {State.SUCCEEDED: 1, State.PENDING: 2}

    def test_what_follows_may_become_a_follower(self, store: Store) -> None:
        holder = keyed("order 1")
        accept(store, holder)
        claim(store, holder.id)
        granted = start(store)
        follow = keyed("order 1", in_canvas=True)
        assert store.settle(succeeded(granted, follow=(follow,)))
        row = found(store, follow.id)
        assert (row.reason, row.holder) == (Reason.HELD_KEY, holder.id)

    def test_what_follows_may_have_a_key_of_its_own(self, store: Store) -> None:
        granted = start(store)
        follow = keyed("order 1")
        assert store.settle(succeeded(granted, follow=(follow,)))
        [verdict] = store.enqueue([keyed("order 1", in_canvas=True)])
        assert isinstance(verdict, Accepted)
        assert verdict.holder == follow.id

    def test_what_follows_in_conflict_with_a_held_key_is_dead_and_says_so(self, store: Store) -> None:
        holder, follow = keyed("order 1"), keyed("order 1", what="other")
        accept(store, holder)
        assert store.settle(succeeded(start(store), follow=(follow,)))
        row = found(store, follow.id)
        assert (row.state, row.attempts, row.told) == (State.DEAD, 0, False)
        [conflict] = row.failures
        assert conflict.type_name.endswith("KeyConflict")
        assert holder.id in conflict.message
        assert found(store, holder.id).state is State.PENDING

    def test_what_followed_in_conflict_is_replayed_only_once_its_key_is_free(self, store: Store) -> None:
        holder, follow = keyed("order 1"), keyed("order 1", what="other")
        accept(store, holder)
        assert store.settle(succeeded(start(store), follow=(follow,)))
        [skipped] = store.replay([follow.id])
        assert (skipped.answer, holder.id in skipped.why) == ("skipped", True)
        store.cancel(holder.id)
        assert [answer.answer for answer in store.replay([follow.id])] == ["replayed"]
        [verdict] = store.enqueue([keyed("order 1")])
        assert verdict == Conflict(verdict.id, follow.id, State.PENDING)

    def test_a_failure_may_be_followed_too(self, store: Store) -> None:
        granted = start(store)
        follow = new_job()
        assert store.settle(dead(granted, follow=(follow,)))
        assert taken_ids(store) == [follow.id]


class TestSettleFailure:
    def test_a_failure_comes_back_with_its_attempt(self, store: Store) -> None:
        granted = start(store)
        given = failure("no funds", traceback="Traceback\n  line\n", truncated=True, worker="w@ö", fence=1, attempt=1)
        assert store.settle(dead(granted, failure=given))
        row = found(store, granted.id)
        assert (row.failure_class, row.cause, row.reason) == ("permanent", "c0ffee", Reason.FAILED)
        [stored] = row.failures
        for name in ("failure_class", "type_name", "message", "traceback", "cause", "worker", "truncated"):
            assert getattr(stored, name) == getattr(given, name), name
        assert (stored.fence, stored.attempt) == (1, 1)
        assert stored.at is not None
        assert stored.at.utcoffset() == timedelta(0)

    def test_every_attempt_leaves_its_failure(self, store: Store) -> None:
        granted = start(store)
        for message in ("first", "second"):
            assert store.settle(retried(granted, failure=failure(message, fence=granted.fence)))
            granted = claim(store, granted.id)
        assert store.settle(dead(granted, failure=failure("third", fence=granted.fence)))
        assert [f.message for f in found(store, granted.id).failures] == ["first", "second", "third"]
        outcome = store.outcome(granted.id)
        assert outcome is not None
        assert outcome[2] is not None
        assert outcome[2].message == "third"

    @pytest.mark.parametrize(
        "text", ["🎈 déjà vu \u202e", "'; DROP TABLE guard_job; --", "100% %s %(x)s :x {x} ?", "a\\b\n\t\r"]
    )
    def test_text_of_a_failure_comes_back_as_it_was(self, store: Store, text: str) -> None:
        granted = start(store)
        assert store.settle(dead(granted, failure=failure(text, traceback=text, worker=text)))
        [stored] = found(store, granted.id).failures
        assert (stored.message, stored.traceback, stored.worker) == (text, text, text)

    @pytest.mark.parametrize("odd", ["\x00", "\ud800", "\udfff\ud800"], ids=["NUL", "surrogate", "two surrogates"])
    def test_text_that_no_database_takes_does_not_hinder_the_settlement(self, store: Store, odd: str) -> None:
        granted = start(store)
        text = f"before{odd}after"
        assert store.settle(dead(granted, failure=failure(text, traceback=text, worker=text, type_name=text)))
        [stored] = found(store, granted.id).failures
        for kept in (stored.message, stored.traceback, stored.worker, stored.type_name):
            assert kept.startswith("before")
            assert kept.endswith("after")
            assert kept.encode(), "no lone surrogate comes back"

    def test_a_long_failure_does_not_hinder_the_settlement(self, store: Store) -> None:
        granted = start(store)
        long = "é🎈" * 20_000
        assert store.settle(dead(granted, failure=failure(long, traceback=long, type_name=long[:500])))
        [stored] = found(store, granted.id).failures
        assert long.startswith(stored.message[:100])

    def test_a_success_after_failures_keeps_them_but_is_none(self, store: Store) -> None:
        granted = start(store)
        assert store.settle(retried(granted, failure=failure("first")))
        assert store.settle(succeeded(claim(store, granted.id)))
        assert store.outcome(granted.id) == (State.SUCCEEDED, result(), None)
        assert [f.message for f in found(store, granted.id).failures] == ["first"]

    def test_a_note_moves_nothing(self, store: Store) -> None:
        granted = start(store)
        before = found(store, granted.id)
        store.note(granted.id, failure("superseded", failure_class="superseded", fence=7, attempt=3))
        after = found(store, granted.id)
        assert [(f.message, f.fence, f.attempt) for f in after.failures] == [("superseded", 7, 3)]
        assert (after.state, after.fence, after.due, after.failure_class) == (
            before.state,
            before.fence,
            before.due,
            before.failure_class,
        )
        assert store.settle(succeeded(granted))
