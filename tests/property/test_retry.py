"""Delays, for any retry."""

from __future__ import annotations

from datetime import timedelta
from random import Random

from hypothesis import given
from hypothesis import strategies as st

from celery_guard.contract.retry import Retry

SECONDS = st.floats(min_value=1e-6, max_value=3e8)


@st.composite
def retries(draw: st.DrawFn) -> Retry:
    base, cap = sorted((draw(SECONDS), draw(SECONDS)))
    return Retry(max_attempts=None, within=timedelta(days=1), base=base, cap=cap, jitter=draw(st.booleans()))


@given(retries(), st.integers(min_value=-5, max_value=10**30), st.none() | st.timedeltas(), st.integers())
def test_a_delay_is_between_the_floor_and_the_cap(retry: Retry, n: int, floor: timedelta | None, seed: int) -> None:
    delay = retry.delay(n, floor, Random(seed))
    assert isinstance(retry.cap, float)
    cap = timedelta(seconds=retry.cap)
    least = min(max(floor or timedelta(0), timedelta(0)), cap)
    assert least <= delay <= cap


@given(retries(), st.integers(min_value=0, max_value=80), st.integers())
def test_a_delay_is_at_most_what_its_number_allows(retry: Retry, n: int, seed: int) -> None:
    assert isinstance(retry.base, float)
    assert isinstance(retry.cap, float)
    upper = min(retry.cap, retry.base * 2.0**n)
    assert retry.delay(n, None, Random(seed)) <= timedelta(seconds=upper)
