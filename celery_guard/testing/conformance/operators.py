"""What operators ask and do: jobs by key, failure and age, what waits by queue, unknown outcomes, messages they have handled."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any

import pytest

from celery_guard.job.row import NewJob
from celery_guard.job.settlement import Settlement
from celery_guard.job.state import Reason, State
from celery_guard.job.verdict import Accepted, Granted
from celery_guard.store.protocol import Store

from .builders import LONG, NONE, dead, digest, failure, keyed, new_id, new_job, recovered, result, retried, succeeded
from .crowd import together
from .moves import accept, claim, die, eventually, found, lapse, publish, start, store_now, succeed, take, taken_ids

__all__ = ["TestBacklog", "TestHandled", "TestNarrowing", "TestUnknown"]


def _ids(store: Store, **given: Any) -> list[str]:
    return [job.id for job in store.jobs(**given)]


class TestNarrowing:
    def test_jobs_are_found_by_their_key_also_when_they_do_not_hold_it(self, store: Store) -> None:
        first = keyed("order 7")
        accept(store, first, keyed("order 8"), new_job())
        assert _ids(store, key=digest("order 7")) == [first.id]
        store.cancel(first.id)
        second = keyed("order 7")
        accept(store, second)
        assert _ids(store, key=digest("order 7")) == [second.id, first.id]
        assert _ids(store, key=digest("order 9")) == []

    def test_jobs_are_found_by_the_class_of_their_failure(self, store: Store) -> None:
        wanted = die(store, failure=failure(failure_class="throttled"))
        die(store)
        assert _ids(store, failure_class="throttled") == [wanted.id]
        assert _ids(store, failure_class="throttled", states=[State.SUCCEEDED]) == []

    def test_jobs_are_found_by_their_age(self, store: Store) -> None:
        jobs = [new_job(task=task) for task in ("first", "second", "third")]
        accept(store, jobs[0])
        since = found(store, jobs[0].id).created
        eventually(lambda: store.clock() > since + timedelta(milliseconds=50))
        accept(store, jobs[1])
        accept(store, jobs[2])
        assert _ids(store, older=LONG) == []
        assert len(_ids(store, younger=LONG)) == 3
        assert _ids(store, older=NONE, younger=LONG, task="second") == [jobs[1].id]
        # what was accepted at least that long ago, measured by the store between two looks at its clock
        age = store.clock() - found(store, jobs[1].id).created
        assert set(_ids(store, older=age)) >= {jobs[0].id, jobs[1].id}
        assert _ids(store, older=store.clock() - since + LONG) == []
        assert jobs[0].id not in _ids(store, younger=timedelta(milliseconds=1))

    def test_pages_of_what_is_old_enough_show_each_job_once(self, store: Store) -> None:
        jobs = [new_job() for _ in range(7)]
        for job in jobs:
            accept(store, job)
        seen: list[str] = []
        while page := _ids(store, limit=3, older=NONE, younger=LONG, after=seen[-1] if seen else None):
            seen += page
        assert seen == [job.id for job in reversed(jobs)]

    def test_the_clock_is_the_one_that_jobs_are_accepted_by(self, store: Store) -> None:
        before = store_now(store)
        between = store.clock()
        assert before <= between <= store_now(store)


class TestBacklog:
    def test_nothing_waits_in_an_empty_store(self, store: Store) -> None:
        assert store.backlog(100) == []

    def test_what_waits_and_runs_is_counted_by_queue(self, store: Store) -> None:
        first = new_job(queue="fast")
        accept(store, first, new_job(queue="fast"), new_job(queue="slow"), new_job(queue="later", delay=LONG))
        fast, slow = store.backlog(100)
        created = found(store, first.id).created
        assert (fast.queue, fast.pending, fast.sent, fast.running, fast.last_start) == ("fast", 2, 0, 0, None)
        assert fast.oldest_due == created
        assert (slow.queue, slow.pending) == ("slow", 1)
        token = new_id()
        assert store.sent(token, taken_ids(store, token=token), LONG) == 3
        granted = claim(store, first.id)
        fast, slow = store.backlog(100)
        row = found(store, first.id)
        assert (fast.pending, fast.sent, fast.running, fast.lapsed) == (0, 1, 1, 0)
        assert (fast.last_start, fast.oldest_due) == (row.started, None)
        assert slow.oldest_sent is not None
        assert (slow.sent, slow.last_start) == (1, None)
        assert store.settle(succeeded(granted))
        [fast, _] = store.backlog(100)
        assert (fast.sent, fast.running, fast.last_start) == (1, 0, row.started)

    def test_the_last_start_is_known_whatever_became_of_the_job(self, store: Store) -> None:
        def last_start() -> datetime | None:
            [only] = store.backlog(100)
            return only.last_start

        publish(store, new_job(queue="fast"))
        assert last_start() is None
        ends: list[Callable[[Granted], Settlement]] = [
            succeeded,
            lambda granted: retried(granted, delay=LONG),
            lambda granted: dead(granted, state=State.UNKNOWN, reason=None),
            lambda granted: succeeded(granted, told=False),
        ]
        for end in ends:
            granted = start(store, new_job(queue="fast"))
            started = found(store, granted.id).started
            assert last_start() == started
            assert store.settle(end(granted))
            assert last_start() == started
            while store.fold(100):
                pass
            assert last_start() == started

    def test_leases_that_have_ended_are_seen(self, store: Store) -> None:
        granted, attempt = lapse(store, new_job(queue="slow"))
        [slow] = store.backlog(100)
        assert (slow.running, slow.lapsed, slow.oldest_lapse) == (1, 1, found(store, granted.id).due)
        assert store.recover(attempt, recovered(attempt, delay=LONG))
        assert store.backlog(100) == []

    def test_no_more_is_looked_at_than_asked(self, store: Store) -> None:
        jobs = [new_job(queue="fast") for _ in range(5)]
        accept(store, *jobs)
        [fast] = store.backlog(3)
        assert (fast.pending, fast.oldest_due) == (3, found(store, jobs[0].id).created)


def _unknown(store: Store, job: NewJob | None = None, **given: Any) -> Granted:
    """A job whose outcome nobody knows."""
    granted = start(store, job)
    assert store.settle(dead(granted, state=State.UNKNOWN, **given))
    assert found(store, granted.id).state is State.UNKNOWN
    return granted


class TestUnknown:
    def test_a_person_says_that_it_succeeded_and_with_what(self, store: Store) -> None:
        granted = _unknown(store, keyed("order 7"))
        assert store.settle_unknown(succeeded(granted, told=False, tell_within=NONE))
        outcome = store.outcome(granted.id)
        assert outcome is not None
        assert (outcome[0], outcome[1]) == (State.SUCCEEDED, result())
        [row] = eventually(lambda: take(store))
        assert (row.id, row.state) == (granted.id, State.SUCCEEDED)
        assert _ids(store, key=digest("order 7")) == [granted.id]

    def test_a_person_says_that_it_failed_and_its_key_is_free(self, store: Store) -> None:
        granted = _unknown(store, keyed("order 7"))
        assert store.settle_unknown(dead(granted, failure=failure("the bank has no such charge")))
        row = found(store, granted.id)
        assert (row.state, row.failures[-1].message) == (State.DEAD, "the bank has no such charge")
        accept(store, keyed("order 7"))

    def test_a_person_has_it_run_again(self, store: Store) -> None:
        granted = _unknown(store)
        assert store.settle_unknown(retried(granted, reason=Reason.REPLAY, retried=False))
        row = found(store, granted.id)
        assert (row.state, row.reason) == (State.PENDING, Reason.REPLAY)
        assert store.settle(succeeded(granted)) is False, "the owner from before is not heard"
        assert claim(store, granted.id).fence == granted.fence + 1

    def test_of_two_people_one_is_heard(self, store: Store) -> None:
        granted = _unknown(store)
        ends = [succeeded, dead, succeeded, dead]
        answers = together(4, lambda place: store.settle_unknown(ends[place](granted)))
        assert sorted(answers) == [False, False, False, True]
        assert found(store, granted.id).state is (State.SUCCEEDED if answers.index(True) % 2 == 0 else State.DEAD)

    @pytest.mark.parametrize("end", [succeeded, dead, retried])
    def test_only_what_is_unknown_is_moved(self, store: Store, end: Any) -> None:
        for granted in (start(store), succeed(store), die(store)):
            before = found(store, granted.id)
            assert store.settle_unknown(end(granted)) is False
            assert found(store, granted.id) == before

    def test_what_became_unknown_again_since_it_was_read_is_not_moved(self, store: Store) -> None:
        granted = _unknown(store)
        assert store.settle_unknown(retried(granted, reason=Reason.REPLAY))
        again = claim(store, granted.id)
        assert store.settle(dead(again, state=State.UNKNOWN))
        assert store.settle_unknown(succeeded(granted)) is False
        assert store.settle_unknown(succeeded(again)) is True

    def test_those_who_wait_for_it_are_brought_back(self, store: Store) -> None:
        granted = _unknown(store, keyed("order 7"))
        follower = keyed("order 7", in_canvas=True)
        [answer] = store.enqueue([follower])
        assert answer == Accepted(follower.id, granted.id)
        assert taken_ids(store) == []
        assert store.settle_unknown(succeeded(granted))
        assert eventually(lambda: follower.id in taken_ids(store))


class TestHandled:
    def _keep(self, store: Store, **given: Any) -> int:
        values = {"queue": "celery", "body": b"x", "headers": "{}", "content_type": "text/plain"}
        return store.quarantine(**{**values, "content_encoding": "utf-8", "reason": "undecodable", **given})

    def test_a_message_that_is_brought_twice_is_kept_once(self, store: Store) -> None:
        first = self._keep(store, token="a" * 64)
        assert self._keep(store, token="a" * 64) == first
        assert self._keep(store, token="b" * 64) != first
        assert len(store.quarantined()) == 2

    def test_how_it_is_published_again_is_kept(self, store: Store) -> None:
        number = self._keep(store, delivery='{"priority": 3, "é": null}')
        message = store.message(number)
        assert message is not None
        assert (message.delivery, message.state, message.handled) == ('{"priority": 3, "é": null}', "kept", None)
        other = store.message(self._keep(store))
        assert other is not None
        assert other.delivery is None

    @pytest.mark.parametrize("end", ["released", "discarded"])
    def test_what_a_person_has_handled_is_out_of_sight_and_still_there(self, store: Store, end: str) -> None:
        number, other = self._keep(store), self._keep(store)
        assert store.move_message(number, "kept", end, "by ann: é")
        assert [message.id for message in store.quarantined()] == [other]
        assert [message.id for message in store.quarantined(handled=True)] == [other, number]
        message = store.message(number)
        assert message is not None
        assert (message.state, message.why, message.body) == (end, "by ann: é", b"x")
        assert message.handled is not None
        assert message.received <= message.handled

    @pytest.mark.parametrize("end", ["released", "discarded"])
    def test_what_was_handled_and_is_kept_again_is_seen_again(self, store: Store, end: str) -> None:
        number, other = self._keep(store), self._keep(store)
        assert store.move_message(number, "kept", end, "by ann")
        assert store.move_message(number, end, "kept", "it came back")
        assert [message.id for message in store.quarantined()] == [other, number]
        message = store.message(number)
        assert message is not None
        assert (message.state, message.why, message.handled) == ("kept", "it came back", None)

    def test_what_is_being_released_is_still_seen(self, store: Store) -> None:
        number = self._keep(store)
        assert store.move_message(number, "kept", "releasing", "mended")
        [message] = store.quarantined()
        assert (message.state, message.handled) == ("releasing", None)
        assert store.move_message(number, "releasing", "released", "mended")

    def test_a_message_is_moved_only_from_where_it_was_seen(self, store: Store) -> None:
        number = self._keep(store)
        assert store.move_message(number, "releasing", "released", "") is False
        assert store.move_message(number + 100, "kept", "released", "") is False
        assert sorted(together(4, lambda _: store.move_message(number, "kept", "discarded", ""))) == [False] * 3 + [
            True
        ]

    def test_pages_follow_each_other(self, store: Store) -> None:
        numbers = [self._keep(store) for _ in range(5)]
        seen = [message.id for message in store.quarantined(2)]
        seen += [message.id for message in store.quarantined(2, before=seen[-1])]
        seen += [message.id for message in store.quarantined(2, before=seen[-1])]
        assert seen == numbers[::-1]
