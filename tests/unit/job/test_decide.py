"""The rules of retry, crash and death, without a clock and without a store."""

from __future__ import annotations

import random
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from celery_guard.contract.backoff import Backoff
from celery_guard.contract.classify import FailureClass
from celery_guard.contract.contract import Effective
from celery_guard.contract.retry import Retry
from celery_guard.contract.timing import Timing
from celery_guard.job.decide import Next, after_crash, after_failure, after_limit, after_retry_asked
from celery_guard.job.row import Attempt
from celery_guard.job.state import Reason, State
from celery_guard.job.verdict import Granted

NOTHING = timedelta(0)
LEASE = timedelta(seconds=2)
SOON = Backoff(base=1, cap=1, jitter=False)


def granted(**facts: Any) -> Granted:
    plain = Granted(
        id="j", fence=1, owner="o", generation=0, attempts=1, crashes=0, retries=0, cancel=False, remaining=None,
        deadline=None, age=NOTHING, tenant=None, key=None, correlation_id=None, holder=None,
    )  # fmt: skip
    return replace(plain, **facts)


def lapsed(**facts: Any) -> Attempt:
    plain = Attempt(
        id="j", task="t", queue="q", state=State.RUNNING, reason=None, fence=1, owner="o", attempts=1, crashes=0, retries=0,
        publications=1, cancel=False, age=timedelta(seconds=5), total=timedelta(seconds=5),
    )  # fmt: skip
    return replace(plain, **facts)


def contract(*, best_effort: bool = False, timing: Timing | None = None, **retry: Any) -> Effective:
    return Effective(
        task="t", retry=Retry(**{"base": 1, "cap": 1, "jitter": False, **retry}), timing=timing or Timing(),
        best_effort=best_effort,
    )  # fmt: skip


def failed(error: BaseException, effective: Effective, **facts: Any) -> Next:
    return after_failure(granted(**facts), error, effective, NOTHING, random.Random(1))


def crashed(effective: Effective, **facts: Any) -> Next:
    return after_crash(lapsed(**facts), effective, LEASE, SOON, random.Random(1))


def test_without_a_policy_a_failure_is_final() -> None:
    found = failed(ConnectionError(), contract())
    assert (found.state, found.reason, found.failure_class) == (State.DEAD, Reason.FAILED, FailureClass.TRANSIENT)


def test_a_transient_failure_is_repeated_until_attempts_are_used_up() -> None:
    effective = contract(max_attempts=3)
    assert failed(ConnectionError(), effective, attempts=2) == Next(
        State.PENDING, Reason.RETRY, timedelta(seconds=1), FailureClass.TRANSIENT
    )
    assert failed(ConnectionError(), effective, attempts=3).reason is Reason.EXHAUSTED


def test_a_permanent_failure_is_not_repeated_and_is_not_called_exhausted() -> None:
    found = failed(ValueError(), contract(max_attempts=3))
    assert (found.state, found.reason) == (State.DEAD, Reason.FAILED)


def test_crashes_do_not_use_up_attempts() -> None:
    assert failed(ConnectionError(), contract(max_attempts=2), attempts=3, crashes=2).again


def test_no_retry_starts_after_the_wall_clock_of_the_contract() -> None:
    effective = contract(max_attempts=None, within=timedelta(seconds=10))
    assert failed(ConnectionError(), effective, age=timedelta(seconds=9)).again
    assert failed(ConnectionError(), effective, age=timedelta(seconds=9.5)).reason is Reason.EXHAUSTED


def test_no_retry_starts_after_the_deadline() -> None:
    effective = contract(max_attempts=9)
    assert failed(ConnectionError(), effective, remaining=timedelta(seconds=1.1)).again
    assert failed(ConnectionError(), effective, remaining=timedelta(seconds=1)).reason is Reason.EXPIRED


def test_the_time_that_the_attempt_took_counts() -> None:
    effective = contract(max_attempts=9)
    facts = granted(remaining=timedelta(seconds=5))
    assert after_failure(facts, ConnectionError(), effective, timedelta(seconds=3), random.Random()).again
    late = after_failure(facts, ConnectionError(), effective, timedelta(seconds=4), random.Random())
    assert late.reason is Reason.EXPIRED


def test_a_retry_that_is_asked_for_takes_its_own_delay_and_the_same_bounds() -> None:
    effective = contract(max_attempts=2)

    def asked(**facts: Any) -> Next:
        return after_retry_asked(granted(**facts), None, timedelta(seconds=30), effective, NOTHING, random.Random())

    assert asked().delay == timedelta(seconds=30)
    assert asked(remaining=timedelta(seconds=20)).reason is Reason.EXPIRED


def test_a_best_effort_job_is_dropped_not_dead() -> None:
    assert failed(ValueError(), contract(best_effort=True)).state is State.DROPPED


def test_a_lost_job_comes_back_without_a_policy_until_crashes_are_used_up() -> None:
    effective = contract()
    assert crashed(effective, crashes=0) == Next(State.PENDING, Reason.LOST, timedelta(seconds=1), FailureClass.UNKNOWN)
    assert crashed(effective, crashes=1, attempts=2).again
    last = crashed(effective, crashes=2, attempts=3)
    assert (last.state, last.reason) == (State.DEAD, Reason.CRASHED)


def test_a_lost_job_that_was_asked_to_stop_is_cancelled() -> None:
    assert crashed(contract(), cancel=True).state is State.CANCELLED


def test_a_lost_job_past_its_deadline_is_expired() -> None:
    assert crashed(contract(), remaining=timedelta(seconds=-1)).reason is Reason.EXPIRED


def leased_until(seconds: float) -> timedelta:
    """A lease that was renewed so long after the attempt's start for the last time."""
    return timedelta(seconds=seconds) + LEASE


@pytest.mark.parametrize(("attempts", "state"), [(1, State.PENDING), (2, State.DEAD)])
def test_an_attempt_that_lived_to_its_limit_is_a_failed_attempt_not_a_crash(attempts: int, state: State) -> None:
    effective = contract(timing=Timing(attempt=5), max_attempts=2)
    found = crashed(effective, leased=leased_until(4.9), attempts=attempts)
    assert found.state is state
    assert found.reason is (Reason.RETRY if state is State.PENDING else Reason.TIME_LIMIT)


def test_an_attempt_that_died_early_is_a_crash_however_late_it_is_found() -> None:
    found = crashed(contract(timing=Timing(attempt=5)), leased=leased_until(0), age=timedelta(seconds=60))
    assert found.reason is Reason.LOST


def test_an_attempt_that_was_stopped_at_its_limit_may_be_repeated_by_the_contract_only() -> None:
    limited = Timing(attempt=5)
    once = after_limit(granted(), contract(timing=limited), timedelta(seconds=5), random.Random(1))
    assert (once.state, once.reason) == (State.DEAD, Reason.TIME_LIMIT)
    assert after_limit(
        granted(), contract(timing=limited, max_attempts=2), timedelta(seconds=5), random.Random(1)
    ).again
