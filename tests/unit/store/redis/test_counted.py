"""What a Redis store has counted, read from the series that its scripts write."""

from __future__ import annotations

import json

from celery_guard.job.tally import Count
from celery_guard.store.redis.rows import counted


def series(what: str, place: str = "", task: str = "shop.charge", state: str = "succeeded") -> bytes:
    return json.dumps([what, task, state, "", place]).encode()


def test_a_time_that_was_within_one_bound_was_within_all_wider_ones() -> None:
    flat = [series("run_in", "1"), b"3", series("run_in", "6"), b"2", series("cancel_in", "7", state=""), b"4"]
    within = {(one.what, one.failure_class): one.total for one in counted(flat)}
    assert within == {
        **{(Count.RUN_WITHIN, str(place)): 3 for place in range(1, 6)},
        (Count.RUN_WITHIN, "6"): 5,
        (Count.RUN_WITHIN, "7"): 5,
        (Count.CANCEL_WITHIN, "7"): 4,
    }


def test_what_a_release_before_has_counted_of_each_bound_stays_in_the_total() -> None:
    flat = [series("run_within", "5"), b"10", series("run_within", "6"), b"12", series("run_in", "6"), b"2"]
    assert {one.failure_class: one.total for one in counted(flat)} == {"5": 10, "6": 14, "7": 2}


def test_what_a_newer_release_counts_is_left_out() -> None:
    assert counted([series("naps"), b"1"]) == []
