"""Crashes and hard limits: how often a job comes back from them, after how long, and how one is told from the other."""

from __future__ import annotations

from datetime import timedelta
from random import Random
from typing import Any

import pytest

from celery_guard.contract.backoff import Backoff
from celery_guard.contract.contract import Effective
from celery_guard.contract.retry import Retry
from celery_guard.contract.timing import Timing
from celery_guard.job.decide import after_crash, after_limit
from celery_guard.job.row import Attempt
from celery_guard.job.state import Reason, State
from celery_guard.job.verdict import Granted

LEASE = timedelta(seconds=30)
BACKOFF = Backoff(base=2, cap=60)


class Longest(Random):
    """Draws the upper end of every delay."""

    def random(self) -> float:
        return 1.0


def lapsed(**given: Any) -> Attempt:
    """A running attempt whose lease has lapsed, unless said otherwise the first, after one lease without a renewal."""
    values: dict[str, Any] = {
        "id": "j", "task": "t", "queue": "q", "state": State.RUNNING, "reason": Reason.NEW, "fence": 1, "owner": "o",
        "attempts": 1, "crashes": 0, "retries": 0, "publications": 1, "cancel": False,
        "age": LEASE, "total": LEASE, "leased": LEASE,
    }  # fmt: skip
    return Attempt(**{**values, **given})


def granted(**given: Any) -> Granted:
    values: dict[str, Any] = {
        "id": "j", "fence": 1, "owner": "o", "generation": 0, "attempts": 1, "crashes": 0, "retries": 0, "cancel": False,
        "remaining": None, "deadline": None, "age": timedelta(seconds=1), "tenant": None, "key": None,
        "correlation_id": None, "holder": None,
    }  # fmt: skip
    return Granted(**{**values, **given})


def contract(retry: Retry | None = None, **timing: Any) -> Effective:
    return Effective(task="t", retry=retry or Retry(), timing=Timing(**timing))


def test_crash_1_the_delay_after_a_crash_grows_up_to_its_cap() -> None:
    bounds = contract(Retry(max_crashes=10))
    delays = [
        after_crash(lapsed(attempts=n + 1, crashes=n), bounds, LEASE, BACKOFF, Longest()).delay.total_seconds()
        for n in range(8)
    ]
    assert delays == [2, 4, 8, 16, 32, 60, 60, 60]


def test_crash_1_the_last_crash_within_the_bound_is_final() -> None:
    ends = [after_crash(lapsed(attempts=n + 1, crashes=n), contract(), LEASE, BACKOFF, Random()) for n in range(3)]
    assert [(end.state, end.reason) for end in ends] == [
        (State.PENDING, Reason.LOST),
        (State.PENDING, Reason.LOST),
        (State.DEAD, Reason.CRASHED),
    ]


def test_crash_1_crashes_do_not_use_up_the_attempts_of_the_contract() -> None:
    bounds = contract(Retry(max_attempts=2, max_crashes=5), attempt=60)
    at_the_limit = lapsed(attempts=3, crashes=2, leased=timedelta(seconds=59) + LEASE)
    assert after_crash(at_the_limit, bounds, LEASE, BACKOFF, Random()).reason is Reason.RETRY


@pytest.mark.parametrize("seconds", [0, 10, 20, 57])
def test_crash_3_an_attempt_that_went_silent_before_its_limit_has_crashed(seconds: int) -> None:
    """However late that is seen."""
    attempt = lapsed(leased=timedelta(seconds=seconds) + LEASE, age=timedelta(hours=1))
    assert after_crash(attempt, contract(attempt=60), LEASE, BACKOFF, Random()).reason is Reason.LOST


@pytest.mark.parametrize("limit", [0.5, 1, 7, 60, 86400])
def test_crash_3_an_attempt_that_was_alive_right_before_its_limit_was_ended_there(limit: float) -> None:
    bounds = contract(attempt=limit)
    assert bounds.timing.last_renewal is not None
    attempt = lapsed(leased=bounds.timing.last_renewal + LEASE)
    end = after_crash(attempt, bounds, LEASE, BACKOFF, Random())
    assert (end.state, end.reason) == (State.DEAD, Reason.TIME_LIMIT)


def test_crash_3_a_limit_is_final_or_repeated_as_the_contract_says_of_a_timeout() -> None:
    said = {
        "nothing": contract(attempt=60),
        "twice": contract(Retry(max_attempts=2), attempt=60),
        "never": contract(Retry(max_attempts=2, never=(TimeoutError,)), attempt=60),
        "only others": contract(Retry(max_attempts=2, on=(KeyError,), only=True), attempt=60),
        "not so late": contract(Retry(max_attempts=None, within=timedelta(seconds=30)), attempt=60),
    }
    ends = {name: after_limit(granted(), bounds, timedelta(seconds=60), Random()) for name, bounds in said.items()}
    assert {name for name, end in ends.items() if end.again} == {"twice"}
    assert {end.reason for end in ends.values() if not end.again} == {Reason.TIME_LIMIT}


def test_crash_3_a_cancelled_job_does_not_come_back_from_a_crash() -> None:
    assert after_crash(lapsed(cancel=True), contract(), LEASE, BACKOFF, Random()).state is State.CANCELLED
