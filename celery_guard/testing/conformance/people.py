"""What people ask for: lists and counts, cancel, replay, and messages that nobody could open."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from celery_guard.job.row import NewJob
from celery_guard.job.state import STANDING, Reason, State
from celery_guard.job.verdict import Settled
from celery_guard.store.protocol import Cancelled, Store

from .builders import LONG, NONE, dead, failure, keyed, new_id, new_job, payload, retried, succeeded
from .crowd import together
from .moves import accept, claim, die, eventually, found, lose, publish, start, succeed, take, taken_ids

__all__ = ["TestCancel", "TestQuarantine", "TestReading", "TestReplay"]


def _ids(store: Store, **given: Any) -> list[str]:
    return [job.id for job in store.jobs(**given)]


def _only(field: str) -> dict[str, Any]:
    return {field: "acme"}


class TestReading:
    def test_a_job_that_is_not_there_is_none(self, store: Store) -> None:
        assert store.job(new_id()) is None

    def test_jobs_come_newest_first(self, store: Store) -> None:
        jobs = [new_job() for _ in range(4)]
        for job in jobs:
            accept(store, job)
        created = [job.created for job in store.jobs()]
        assert created == sorted(created, reverse=True)
        assert sorted(_ids(store)) == sorted(job.id for job in jobs)

    def test_pages_together_show_each_job_once(self, store: Store) -> None:
        jobs = [new_job() for _ in range(11)]
        accept(store, *jobs[:7])
        accept(store, *jobs[7:])
        seen: list[str] = []
        while page := _ids(store, limit=3, after=seen[-1] if seen else None):
            assert len(page) <= 3
            seen += page
        assert len(seen) == 11
        assert {*seen} == {job.id for job in jobs}
        assert {*seen[:4]} == {job.id for job in jobs[7:]}

    def test_jobs_are_listed_once_each_wherever_they_are_on_their_way(self, store: Store) -> None:
        """In the order in which they came, whether they wait, run, are unknown, have just ended, or are counted."""
        made: dict[str, NewJob] = {}

        def new(name: str) -> NewJob:
            made[name] = keyed(name, task="shop.refund", queue="slow", tenant="acme")
            return made[name]

        def unknown(job: NewJob) -> None:
            assert store.settle(dead(start(store, job), state=State.UNKNOWN, reason=None))

        def taken(job: NewJob) -> None:
            accept(store, job)
            assert [row.id for row in take(store)] == [job.id]

        stages: dict[str, tuple[Callable[[NewJob], object], State]] = {
            "counted": (lambda job: succeed(store, job), State.SUCCEEDED),
            "counted dead": (lambda job: die(store, job), State.DEAD),
            "published": (lambda job: publish(store, job), State.SENT),
            "unknown": (unknown, State.UNKNOWN),
            "retried": (lambda job: store.settle(retried(start(store, job), delay=LONG)), State.PENDING),
            "ended": (lambda job: succeed(store, job), State.SUCCEEDED),
            "dead": (lambda job: die(store, job), State.DEAD),
            "runs": (lambda job: start(store, job), State.RUNNING),
            "taken": (taken, State.PENDING),
            "new": (lambda job: accept(store, job), State.PENDING),
        }
        for name, (bring, _) in stages.items():
            bring(new(name))
            while name == "counted dead" and store.fold(100):
                pass
        ids = [made[name].id for name in reversed(stages)]
        for given in ({}, {"task": "shop.refund"}, {"tenant": "acme"}, {"queue": "slow"}):
            assert _ids(store, **given) == ids, given
            seen: list[str] = []
            while page := _ids(store, limit=3, after=seen[-1] if seen else None, **given):
                seen += page
            assert seen == ids, given
        for states in ([State.PENDING, State.UNKNOWN], [State.SUCCEEDED], [State.DEAD, State.SENT, State.RUNNING]):
            wanted = [made[name].id for name in reversed(stages) if stages[name][1] in states]
            assert _ids(store, states=states) == _ids(store, states=states, task="shop.refund") == wanted
        for name, job in made.items():
            assert _ids(store, key=job.key) == [job.id], name
        counts = Counter(state for _, state in stages.values())
        assert store.counts("acme") == store.counts() == counts
        for some in (STANDING, [State.DEAD], [State.SUCCEEDED, State.PENDING]):
            wanted_counts = {state: number for state, number in counts.items() if state in some}
            assert store.counts("acme", some) == store.counts(states=some) == wanted_counts

    def test_jobs_are_found_by_what_they_are(self, store: Store) -> None:
        wanted = new_job(task="shop.refund", queue="slow", tenant="acme")
        die(store, wanted, failure=failure(cause="bad cafe"))
        die(store, new_job(task="shop.charge", queue="fast", tenant="other"))
        succeed(store)
        wishes: list[dict[str, Any]] = [
            {"states": [State.DEAD], "task": "shop.refund"},
            {"task": "shop.refund"},
            {"queue": "slow"},
            {"tenant": "acme"},
            {"cause": "bad cafe"},
            {"states": [State.DEAD, State.RUNNING], "task": "shop.refund", "queue": "slow", "tenant": "acme"},
        ]
        for given in wishes:
            assert _ids(store, **given) == [wanted.id], given
        assert _ids(store, states=[State.SUCCEEDED], task="shop.refund") == []
        assert _ids(store, states=[State.SUCCEEDED], cause="bad cafe") == []
        assert _ids(store, states=[State.DEAD], task="shop.charge", cause="bad cafe") == []
        assert len(_ids(store, states=[State.DEAD, State.SUCCEEDED])) == 3

    @pytest.mark.parametrize("field", ["task", "queue", "tenant"])
    def test_filters_compare_exactly(self, store: Store, field: str) -> None:
        accept(store, *(new_job(**{field: value}) for value in ("acme", "Acme", "acmé", "acme ")))
        assert [getattr(job, field) for job in store.jobs(**_only(field))] == ["acme"]

    def test_counts_are_by_state(self, store: Store) -> None:
        assert store.counts() == {}
        accept(store, new_job(), new_job(delay=LONG))
        start(store)
        succeed(store)
        die(store)
        assert store.counts() == {State.PENDING: 2, State.RUNNING: 1, State.SUCCEEDED: 1, State.DEAD: 1}
        accept(store, new_job(tenant="acme"), new_job(tenant="acme"))
        assert (store.counts("acme"), store.counts("other")) == ({State.PENDING: 2}, {})

    def test_times_are_aware_and_in_order(self, store: Store) -> None:
        granted = start(store)
        assert store.settle(succeeded(granted))
        row = found(store, granted.id)
        assert row.started is not None
        assert row.finished is not None
        assert row.keep_until is not None
        assert row.created <= row.started <= row.finished <= row.keep_until
        for instant in (row.created, row.started, row.finished, row.keep_until):
            assert instant.utcoffset() == NONE

    def test_a_store_says_what_it_cannot_keep(self, store: Store) -> None:
        assert all(name.startswith("G") and why for name, why in store.limits.items())


_OVER: dict[State, Callable[..., Any]] = {
    State.SUCCEEDED: succeeded,
    State.DEAD: dead,
    State.DROPPED: lambda granted: dead(granted, state=State.DROPPED),
}


class TestCancel:
    def test_a_waiting_job_is_cancelled_at_once(self, store: Store) -> None:
        job = new_job(delay=LONG)
        accept(store, job)
        assert store.cancel(job.id) == Cancelled(job.id, "cancelled", State.CANCELLED)
        row = found(store, job.id)
        assert (row.state, row.attempts) == (State.CANCELLED, 0)
        assert row.finished is not None
        assert row.keep_until is not None

    def test_a_published_job_is_cancelled_at_once(self, store: Store) -> None:
        job = new_job()
        publish(store, job)
        assert store.cancel(job.id) == Cancelled(job.id, "cancelled", State.CANCELLED)
        verdict = store.claim(job.id, "worker-1", LONG)
        assert isinstance(verdict, Settled)
        assert verdict.state is State.CANCELLED

    def test_a_job_that_waits_for_a_retry_is_cancelled_at_once(self, store: Store) -> None:
        granted = start(store)
        assert store.settle(retried(granted, delay=LONG))
        assert store.cancel(granted.id).answer == "cancelled"

    def test_a_lost_job_is_cancelled_at_once(self, store: Store) -> None:
        granted = lose(store)
        assert store.cancel(granted.id).answer == "cancelled"

    def test_a_running_job_is_asked_to_stop(self, store: Store) -> None:
        granted = start(store)
        assert store.cancel(granted.id) == Cancelled(granted.id, "asked", State.RUNNING)
        row = found(store, granted.id)
        assert (row.state, row.cancel, row.shown_state) == (State.RUNNING, True, "cancelling")
        assert store.cancel(granted.id).answer == "asked"

    def test_a_job_that_was_asked_to_stop_may_still_succeed(self, store: Store) -> None:
        granted = start(store)
        store.cancel(granted.id)
        assert store.settle(succeeded(granted))
        assert found(store, granted.id).state is State.SUCCEEDED

    def test_a_job_that_was_asked_to_stop_may_stop(self, store: Store) -> None:
        granted = start(store)
        store.cancel(granted.id)
        assert store.settle(dead(granted, state=State.CANCELLED, reason=None, failure=None))
        assert found(store, granted.id).state is State.CANCELLED

    @pytest.mark.parametrize("state", _OVER)
    def test_it_is_too_late_for_what_has_ended(self, store: Store, state: State) -> None:
        granted = start(store)
        assert store.settle(_OVER[state](granted))
        before = found(store, granted.id)
        assert store.cancel(granted.id) == Cancelled(granted.id, "too late", state)
        assert found(store, granted.id) == before

    def test_what_was_cancelled_is_not_cancelled_twice(self, store: Store) -> None:
        job = new_job()
        accept(store, job)
        store.cancel(job.id)
        assert store.cancel(job.id) == Cancelled(job.id, "too late", State.CANCELLED)

    def test_there_is_nothing_to_cancel_where_there_is_no_job(self, store: Store) -> None:
        nobody = new_id()
        assert store.cancel(nobody).state is None
        assert store.job(nobody) is None

    def test_a_cancel_hits_no_other_job(self, store: Store) -> None:
        granted, other = start(store), start(store)
        store.cancel(granted.id)
        assert found(store, other.id).cancel is False


class TestReplay:
    def test_a_dead_job_waits_again(self, store: Store) -> None:
        granted = die(store, new_job(payload=payload(b"\xff first")))
        [answer] = store.replay([granted.id])
        assert (answer.id, answer.answer) == (granted.id, "replayed")
        row = found(store, granted.id)
        assert (row.state, row.reason, row.replays, row.cancel, row.told) == (
            State.PENDING,
            Reason.REPLAY,
            1,
            False,
            False,
        )
        assert (row.finished, row.keep_until) == (None, None)
        [out] = take(store)
        assert (out.payload, out.reason, out.refusals, out.publications) == (
            payload(b"\xff first"),
            Reason.REPLAY,
            0,
            0,
        )

    def test_counts_start_anew_and_the_fence_does_not(self, store: Store) -> None:
        granted = lose(store)
        granted = claim(store, granted.id)
        assert store.settle(retried(granted))
        granted = claim(store, granted.id)
        assert (granted.attempts, granted.crashes, granted.retries) == (3, 1, 1)
        assert store.settle(dead(granted, interrupted=True))
        store.replay([granted.id])
        again = claim(store, granted.id)
        assert (again.attempts, again.crashes, again.retries, again.interruptions) == (1, 0, 0, 0)
        assert again.fence > granted.fence

    def test_who_tells_of_the_end_that_is_undone_is_not_heard(self, store: Store) -> None:
        granted = die(store, told=False, tell_within=LONG)
        store.replay([granted.id])
        store.cancel(granted.id)
        store.told([(granted.id, granted.fence)])
        row = found(store, granted.id)
        assert (row.state, row.told) == (State.CANCELLED, False)

    def test_the_history_stays(self, store: Store) -> None:
        granted = die(store, failure=failure("first"))
        store.replay([granted.id])
        assert store.settle(dead(claim(store, granted.id), failure=failure("second")))
        assert [f.message for f in found(store, granted.id).failures] == ["first", "second"]

    def test_a_replayed_job_may_succeed_and_is_told(self, store: Store) -> None:
        granted = die(store)
        store.replay([granted.id])
        assert store.settle(succeeded(claim(store, granted.id), told=False, tell_within=NONE))
        [row] = eventually(lambda: take(store))
        assert (row.id, row.state) == (granted.id, State.SUCCEEDED)
        outcome = store.outcome(granted.id)
        assert outcome is not None
        assert (outcome[0], outcome[2]) == (State.SUCCEEDED, None)

    def test_the_attempt_that_died_cannot_settle_after_the_replay(self, store: Store) -> None:
        granted = die(store)
        store.replay([granted.id])
        assert store.settle(succeeded(granted)) is False
        assert found(store, granted.id).state is State.PENDING

    def test_a_replayed_job_may_run_though_its_deadline_is_over(self, store: Store) -> None:
        granted = die(store, new_job(deadline_in=NONE))
        store.replay([granted.id])
        assert [row.expired for row in take(store)] == [False]
        remaining = claim(store, granted.id).remaining
        assert remaining is None or remaining > NONE

    def test_a_replayed_job_keeps_a_deadline_that_is_not_over(self, store: Store) -> None:
        granted = die(store, new_job(deadline_in=LONG))
        store.replay([granted.id])
        assert claim(store, granted.id).deadline == granted.deadline

    def test_a_wish_to_cancel_ends_with_the_life_it_was_for(self, store: Store) -> None:
        granted = start(store)
        store.cancel(granted.id)
        assert store.settle(dead(granted))
        store.replay([granted.id])
        assert claim(store, granted.id).cancel is False

    def test_a_replay_moves_a_job_once(self, store: Store) -> None:
        granted = die(store)
        assert [a.answer for a in store.replay([granted.id]) + store.replay([granted.id])] == ["replayed", "skipped"]
        assert found(store, granted.id).replays == 1
        assert taken_ids(store) == [granted.id]

    def test_answers_come_in_the_order_of_the_ids(self, store: Store) -> None:
        dead_1, nobody, done, dead_2 = die(store).id, new_id(), succeed(store).id, die(store).id
        answers = store.replay([dead_1, nobody, done, dead_2])
        assert [answer.id for answer in answers] == [dead_1, nobody, done, dead_2]
        assert [answer.answer for answer in answers] == ["replayed", "skipped", "skipped", "replayed"]
        assert [bool(answer.why) for answer in answers] == [False, True, True, False]

    @pytest.mark.parametrize("end", [succeeded, retried, lambda g: dead(g, state=State.CANCELLED, reason=None)])
    def test_only_the_dead_are_replayed(self, store: Store, end: Callable[..., Any]) -> None:
        granted = start(store)
        assert [answer.answer for answer in store.replay([granted.id])] == ["skipped"]
        assert store.settle(end(granted))
        before = found(store, granted.id)
        assert [answer.answer for answer in store.replay([granted.id])] == ["skipped"]
        assert found(store, granted.id) == before

    def test_of_two_people_who_replay_at_once_one_does(self, store: Store) -> None:
        ids = [die(store).id for _ in range(5)]
        answers = together(4, lambda _: store.replay(ids))
        for position in range(5):
            assert [mine[position].answer for mine in answers].count("replayed") == 1
        assert {found(store, id).replays for id in ids} == {1}


class TestQuarantine:
    def _keep(self, store: Store, body: bytes, **given: str) -> int:
        values = {"queue": "priorité", "headers": '{"é": 1}', "content_type": "application/x-python-serialize"}
        rest = {"content_encoding": "binary", "reason": "pickle is not opened"}
        return store.quarantine(body=body, **{**values, **rest, **given})

    def test_a_message_nobody_could_open_is_listed(self, store: Store) -> None:
        number = self._keep(store, b"\x80\x04\x95\x00\xff")
        [message] = store.quarantined()
        assert (message.id, message.queue, message.size) == (number, "priorité", 5)
        assert (message.content_type, message.content_encoding) == ("application/x-python-serialize", "binary")
        assert (message.reason, message.headers) == ("pickle is not opened", '{"é": 1}')
        assert message.received.utcoffset() == NONE

    @pytest.mark.parametrize("body", [b"", bytes(range(256)), b"\x00" * 70_000, b"\xff" * 300_000], ids=len)
    def test_a_message_keeps_the_raw_bytes_it_was(self, store: Store, body: bytes) -> None:
        number = self._keep(store, body)
        message = store.message(number)
        assert message is not None
        assert (message.id, message.size, message.body) == (number, len(body), body)
        assert store.message(number + 1) is None

    def test_the_list_does_not_show_bodies(self, store: Store) -> None:
        self._keep(store, b"secret")
        assert [message.body for message in store.quarantined()] == [b""]

    def test_messages_come_newest_first_and_no_more_than_the_limit(self, store: Store) -> None:
        numbers = [self._keep(store, b"x" * size) for size in range(4)]
        assert [message.id for message in store.quarantined()] == numbers[::-1]
        assert [message.size for message in store.quarantined(2)] == [3, 2]

    @pytest.mark.parametrize("odd", ["\x00", "\ud800"], ids=["NUL", "surrogate"])
    def test_text_that_no_database_takes_does_not_hinder_quarantine(self, store: Store, odd: str) -> None:
        text = f"before{odd}after"
        assert self._keep(store, b"x", queue=text, headers=text, content_type=text, content_encoding=text, reason=text)
        [message] = store.quarantined()
        assert message.reason.startswith("before")
        assert message.reason.endswith("after")

    def test_a_message_that_was_kept_for_long_enough_is_deleted_oldest_first(self, store: Store) -> None:
        numbers = [self._keep(store, b"x") for _ in range(5)]
        assert eventually(lambda: store.retain_quarantined(2, NONE)) == 2
        assert [message.id for message in store.quarantined()] == numbers[:1:-1]
        assert store.message(numbers[0]) is None
        assert eventually(lambda: store.retain_quarantined(100, NONE)) == 3
        assert store.quarantined() == []
        assert store.retain_quarantined(100, NONE) == 0

    def test_a_message_that_is_to_be_kept_is_kept(self, store: Store) -> None:
        number = self._keep(store, b"x")
        assert store.retain_quarantined(100, timedelta(minutes=5)) == 0
        assert [message.id for message in store.quarantined()] == [number]
