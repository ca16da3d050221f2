"""Whatever happens to its attempts, a job ends within the bounds of its contract."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from random import Random
from typing import NamedTuple

from hypothesis import given
from hypothesis import strategies as st

from celery_guard.contract.backoff import Backoff
from celery_guard.contract.contract import Effective
from celery_guard.contract.retry import Retry
from celery_guard.contract.timing import Timing
from celery_guard.job.decide import Next, after_crash, after_failure, after_limit
from celery_guard.job.row import Attempt
from celery_guard.job.state import Reason, State
from celery_guard.job.verdict import Granted

LEASE = timedelta(seconds=30)
LIMIT = timedelta(seconds=60)
BACKOFF = Backoff(base=2, cap=60)


class Counts(NamedTuple):
    """What the store counts, as claim and settle move it."""

    attempts: int = 0
    crashes: int = 0
    retries: int = 0


def end_of(how: str, counts: Counts, contract: Effective, draw: Random) -> Next:
    """How the attempt that was just counted ends."""
    if how in ("failure", "limit"):
        granted = Granted(
            "j", 1, "o", 0, *counts, cancel=False, remaining=None, deadline=None, age=LEASE, tenant=None, key=None,
            correlation_id=None, holder=None,
        )  # fmt: skip
        if how == "failure":
            return after_failure(granted, ConnectionError(), contract, LIMIT, draw)
        return after_limit(granted, contract, LIMIT, draw)
    attempt = Attempt(
        "j", "t", "q", State.RUNNING, Reason.NEW, 1, "o", *counts, publications=1, cancel=False, age=LEASE, total=LEASE,
        leased=LEASE,
    )  # fmt: skip
    if how == "killed at its limit":
        attempt = replace(attempt, leased=LIMIT + LEASE)
    return after_crash(attempt, contract, LEASE, BACKOFF, draw)


@given(
    st.integers(1, 5), st.integers(1, 5), st.randoms(use_true_random=False),
    st.lists(st.sampled_from(["failure", "limit", "crash", "killed at its limit"]), min_size=10, max_size=10),
)  # fmt: skip
def test_a_job_ends_within_its_attempts_and_crashes(
    max_attempts: int, max_crashes: int, draw: Random, fates: list[str]
) -> None:
    retry = Retry(max_attempts=max_attempts, max_crashes=max_crashes)
    contract = Effective(task="t", retry=retry, timing=Timing(attempt=LIMIT))
    counts = Counts()
    for how in fates:
        counts = counts._replace(attempts=counts.attempts + 1)
        end = end_of(how, counts, contract, draw)
        if not end.again:
            break
        crashed = end.reason is Reason.LOST
        counts = counts._replace(crashes=counts.crashes + crashed, retries=counts.retries + (not crashed))
    else:
        raise AssertionError(f"still going after {counts}")
    assert counts.attempts <= max_attempts + max_crashes - 1
