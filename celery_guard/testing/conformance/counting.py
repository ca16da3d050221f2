"""What a store has counted: each thing once, whatever becomes of the rows; and what it says of those that wait."""

from __future__ import annotations

from collections import Counter
from datetime import datetime, timedelta, timezone
from enum import Enum

from celery_guard.job.row import StoredPayload
from celery_guard.job.settlement import Settlement
from celery_guard.job.state import Kind, Reason, State
from celery_guard.job.tally import BOUNDS, Count
from celery_guard.job.verdict import Conflict, Duplicate, Leased
from celery_guard.store.protocol import Store

from .builders import LONG, NONE, SOON, dead, failure, keyed, new_id, new_job, recovered, retried, succeeded
from .crowd import together
from .moves import accept, claim, die, eventually, lapse, publish, start, succeed, take

__all__ = ["TestCounting", "TestStanding"]

TASK = "shop.charge"
EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)


class _Newer(str, Enum):
    """What a release counts that this one does not know."""

    REPAIRED = "repaired"


def totals(store: Store, task: str = TASK) -> Counter[tuple[str, ...]]:
    """What was counted of a task, without times: (what, labels that are not empty) -> total."""
    found: Counter[tuple[str, ...]] = Counter()
    for one in store.counted():
        if one.task == task and not one.what.endswith(("_time", "_within", "_success")) and one.total:
            labels = (one.what.value, one.state, one.reason, one.failure_class)
            found[tuple(label for label in labels if label)] = one.total
    return found


def at_microsecond(store: Store, id: str) -> int:
    """When a job ended."""
    found = store.job(id)
    assert found is not None
    assert found.finished is not None
    return (found.finished - EPOCH) // timedelta(microseconds=1)


def forget_all(store: Store) -> None:
    """Delete every row whose time is over."""
    while store.retain(500):
        pass


class TestCounting:
    def test_a_job_is_counted_at_each_station(self, store: Store) -> None:
        job = new_job()
        publish(store, job)
        granted = claim(store, job.id)
        assert store.settle(retried(granted, failure=failure(failure_class="transient")))
        token = new_id()
        take(store, token)
        store.sent(token, [job.id], LONG)
        assert store.settle(dead(claim(store, job.id)))
        assert totals(store) == {
            ("enqueued",): 1, ("published",): 2, ("claimed",): 2, ("retried", "transient"): 1, ("failed", "transient"): 1,
            ("failed", "permanent"): 1, ("ended", "dead", "failed", "permanent"): 1, ("run", "dead"): 1,
        }  # fmt: skip

    def test_a_retry_is_counted_by_the_class_of_the_failure_that_it_answers(self, store: Store) -> None:
        def retries() -> dict[str, int]:
            return {one.failure_class: one.total for one in store.counted() if one.what is Count.RETRIED and one.total}

        granted = start(store)
        assert store.settle(retried(granted, failure=failure(failure_class="throttled")))
        assert store.settle(retried(claim(store, granted.id)))
        assert retries() == {"throttled": 1, "": 1}
        assert store.settle(dead(claim(store, granted.id), failure=failure(failure_class="throttled")))
        assert retries() == {"throttled": 1, "": 1}
        store.fold(500)
        assert retries() == {"throttled": 1, "": 1}
        store.replay([granted.id])
        for failure_class in ("throttled", "transient"):
            assert store.settle(retried(claim(store, granted.id), failure=failure(failure_class=failure_class)))
        assert retries() == {"throttled": 2, "transient": 1, "": 1}
        assert store.settle(succeeded(claim(store, granted.id)))
        store.fold(500)
        assert retries() == {"throttled": 2, "transient": 1, "": 1}

    def test_a_crash_and_what_comes_back_too_late_are_counted(self, store: Store) -> None:
        granted, attempt = lapse(store)
        assert store.recover(attempt, recovered(attempt, crashed=True, failure=failure(failure_class="unknown")))
        store.note(granted.id, failure(failure_class="superseded", fence=1, attempt=1))
        assert totals(store) == {
            ("enqueued",): 1, ("claimed",): 1, ("crashed",): 1, ("fenced",): 1, ("failed", "unknown"): 1,
        }  # fmt: skip

    def test_what_no_row_says_is_counted(self, store: Store) -> None:
        first, second, third = keyed("a"), keyed("a"), keyed("a", "other")
        accept(store, first)
        [duplicate, conflict] = store.enqueue([second, third])
        assert (type(duplicate), type(conflict)) == (Duplicate, Conflict)
        granted = claim(store, first.id)
        assert isinstance(store.claim(first.id, "other", LONG), Leased)
        assert store.settle(succeeded(granted))
        store.claim(first.id, "other", LONG)
        store.count(Count.RENEWED_LATE, [first.id, new_id()])
        assert totals(store) == {
            ("enqueued",): 1, ("duplicate",): 1, ("conflict",): 1, ("claimed",): 1, ("ignored",): 2, ("renewed_late",): 1,
            ("ended", "succeeded"): 1, ("run", "succeeded"): 1,
        }  # fmt: skip

    def test_totals_are_the_same_when_rows_were_added_up_and_when_they_are_gone(self, store: Store) -> None:
        succeed(store, keep=NONE)
        die(store, keep=NONE)
        granted, attempt = lapse(store)
        assert store.recover(attempt, recovered(attempt, crashed=True, failure=failure(failure_class="unknown")))
        waits = new_job()
        accept(store, waits)
        store.cancel(waits.id)
        store.claim(granted.id, "other", LONG)
        before = totals(store)
        assert before["ended", "cancelled"] == 1
        while store.fold(500):
            pass
        assert totals(store) == before
        eventually(lambda: store.retain(500))
        forget_all(store)
        assert totals(store) == before

    def test_rows_that_go_before_they_were_added_up_are_counted(self, store: Store) -> None:
        succeed(store, keep=NONE)
        die(store, keep=NONE)
        before = totals(store)
        eventually(lambda: store.retain(500))
        forget_all(store)
        assert before["ended", "succeeded"] == 1
        assert totals(store) == before

    def test_a_job_that_is_replayed_comes_to_another_end_and_was_enqueued_once(self, store: Store) -> None:
        for fold_first in (True, False):
            granted = die(store, new_job(task=f"replayed.{fold_first}"))
            if fold_first:
                store.fold(500)
            store.replay([granted.id])
            again = claim(store, granted.id)
            assert store.settle(succeeded(again))
            assert totals(store, f"replayed.{fold_first}") == {
                ("enqueued",): 1, ("claimed",): 2, ("replayed",): 1, ("failed", "permanent"): 1,
                ("ended", "dead", "failed", "permanent"): 1, ("ended", "succeeded"): 1, ("run", "dead"): 1,
                ("run", "succeeded"): 1,
            }  # fmt: skip

    def test_a_dead_letter_that_is_closed_or_deleted_has_died_once(self, store: Store) -> None:
        closed, deleted = die(store), die(store)
        before = totals(store)
        store.resolve([closed.id], LONG)
        store.purge([deleted.id], unreplayed=True)
        assert store.job(deleted.id) is None
        assert before["ended", "dead", "failed", "permanent"] == 2
        assert totals(store) == before

    def test_a_job_that_replaced_itself_is_counted_as_what_it_was_enqueued_as(self, store: Store) -> None:
        granted = start(store)
        message = StoredPayload(b"[[], {}, {}]", "{}", "{}")
        replaced = Settlement(
            granted.id, granted.fence, granted.owner, State.PENDING, Reason.REPLACED, payload=message, task="shop.refund",
            queue="other", kind=Kind.RUN, charged=False,
        )  # fmt: skip
        assert store.settle(replaced)
        assert store.settle(succeeded(claim(store, granted.id)))
        expected = {("enqueued",): 1, ("claimed",): 2, ("ended", "succeeded"): 1, ("run", "succeeded"): 1}
        assert totals(store) == expected
        assert totals(store, "shop.refund") == {}
        store.fold(500)
        assert totals(store) == expected

    def test_a_message_of_a_task_without_a_guard_is_not_counted_before_it_meets_one(self, store: Store) -> None:
        carried = new_job(kind=Kind.CARRIED)
        publish(store, carried)
        store.fold(500)
        assert totals(store) == {}
        assert store.fold(500) == 0
        assert store.settle(succeeded(claim(store, carried.id)))
        assert totals(store) == {
            ("enqueued",): 1, ("claimed",): 1, ("ended", "succeeded"): 1, ("run", "succeeded"): 1,
        }  # fmt: skip

    def test_what_a_newer_release_counts_is_left_as_it_is(self, store: Store) -> None:
        job = new_job()
        accept(store, job)
        store.count(_Newer.REPAIRED, [job.id])  # type: ignore[arg-type]
        assert totals(store) == {("enqueued",): 1}
        store.fold(500)
        assert totals(store) == {("enqueued",): 1}

    def test_the_time_of_runs_and_of_cancels_is_counted_within_each_bound(self, store: Store) -> None:
        granted = start(store)
        store.cancel(granted.id)
        asked = store.clock()
        eventually(lambda: store.clock() - asked > timedelta(milliseconds=1))  # the clock of SQLite goes by these
        assert store.settle(Settlement(granted.id, granted.fence, granted.owner, State.CANCELLED, told=True, keep=LONG))
        within = [(one.what, one.failure_class, one.total) for one in store.counted() if one.what.endswith("_within")]
        # an hour is above any hiccup
        last = str(len(BOUNDS) - 1)
        assert (Count.RUN_WITHIN, last, 1) in within
        assert (Count.CANCEL_WITHIN, last, 1) in within
        took = {one.what: one.total for one in store.counted()}
        assert took[Count.RUN_TIME] >= took[Count.CANCEL_TIME] > 0

    def test_the_last_success_of_a_task_is_the_latest(self, store: Store) -> None:
        def last() -> int:
            [found] = [one.total for one in store.counted() if one.what is Count.LAST_SUCCESS and one.total]
            return found

        succeed(store)
        first = last()
        store.fold(500)
        succeed(store)
        second = last()
        store.fold(500)
        assert first < second == last()

    def test_the_last_success_of_a_schedule_is_the_latest_of_what_it_has_sent(self, store: Store) -> None:
        def last() -> dict[str, int]:
            return {one.task: one.total for one in store.counted() if one.what is Count.SCHEDULE_SUCCESS}

        granted = [succeed(store, new_job(schedule="nightly"), keep=NONE), succeed(store, new_job(schedule="Nightly"))]
        first = last()
        assert first == {
            name: at_microsecond(store, one.id) for name, one in zip(("nightly", "Nightly"), granted, strict=True)
        }
        # what somebody else sent of the task, what failed, and what is still at work
        succeed(store)
        died = die(store, new_job(schedule="nightly"))
        accept(store, new_job(schedule="nightly"), new_job(schedule="often"))
        assert last() == first
        while store.fold(500):
            pass
        eventually(lambda: store.retain(500))
        forget_all(store)
        assert last() == first
        store.replay([died.id])
        assert store.settle(succeeded(claim(store, died.id)))
        second = last()
        assert second == first | {"nightly": at_microsecond(store, died.id)}
        assert second["nightly"] > first["nightly"]
        together(8, lambda number: store.fold(5))
        assert last() == second

    def test_those_who_add_up_at_once_add_each_thing_once(self, store: Store) -> None:
        for _ in range(12):
            succeed(store)
        held = keyed("k")
        accept(store, held)
        for _ in range(12):
            store.enqueue([keyed("k")])
        before = totals(store)
        together(8, lambda number: store.fold(5))
        assert totals(store) == before


class TestStanding:
    def test_what_waits_and_what_is_dead_is_said_by_state_queue_and_task(self, store: Store) -> None:
        accept(store, new_job(), new_job(queue="slow"))
        publish_one = start(store, new_job(task="other"))
        die(store)
        succeed(store)
        found = sorted((one.state, one.queue, one.task, one.jobs, one.leased) for one in store.standing())
        assert found == [
            ("dead", "default", TASK, 1, 0),
            ("pending", "default", TASK, 1, 0),
            ("pending", "slow", TASK, 1, 0),
            ("running", "default", "other", 1, 1),
        ]
        assert store.settle(succeeded(publish_one))

    def test_the_oldest_is_as_old_as_it_is(self, store: Store) -> None:
        start(store)
        [first] = store.standing()
        [second] = eventually(lambda: [one for one in store.standing() if one.oldest > first.oldest])
        assert timedelta(0) <= first.oldest < second.oldest < LONG

    def test_what_is_not_due_yet_has_not_waited(self, store: Store) -> None:
        accept(store, new_job(delay=LONG))
        [later] = store.standing()
        assert (later.jobs, later.oldest) == (1, timedelta(0))
        accept(store, new_job())
        assert eventually(lambda: [one for one in store.standing() if one.jobs == 2 and one.oldest > timedelta(0)])

    def test_a_lapsed_lease_is_no_live_one(self, store: Store) -> None:
        start(store, lease=SOON)
        [lapsed] = eventually(lambda: [one for one in store.standing() if one.leased == 0])
        assert (lapsed.state, lapsed.jobs) == ("running", 1)
