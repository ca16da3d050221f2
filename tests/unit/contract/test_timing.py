"""What a Timing means, and what it refuses."""

from __future__ import annotations

from dataclasses import FrozenInstanceError, replace
from datetime import timedelta

import pytest

from celery_guard.contract.timing import Timing
from celery_guard.errors import ContractError


def test_plain_numbers_are_seconds() -> None:
    timing = Timing(attempt=30, soft=0.5, grace=2, lease=7)
    assert timing.attempt == timedelta(seconds=30)
    assert timing.soft == timedelta(milliseconds=500)
    assert timing.grace == timedelta(seconds=2)
    assert timing.lease == timedelta(seconds=7)


def test_nothing_is_limited_by_default() -> None:
    timing = Timing()
    assert (timing.attempt, timing.soft, timing.deadline, timing.lease) == (None, None, None, None)
    assert timing.grace == timedelta(seconds=10)


@pytest.mark.parametrize(
    ("given", "named"),
    [
        ({"attempt": 0}, "attempt"),
        ({"attempt": -1}, "attempt"),
        ({"attempt": True}, "attempt"),
        ({"attempt": float("nan")}, "attempt"),
        ({"attempt": "30"}, "attempt"),
        ({"attempt": timedelta(0)}, "attempt"),
        ({"attempt": timedelta(days=10_000)}, "attempt"),
        ({"soft": 0}, "soft"),
        ({"attempt": 30, "soft": 30}, "soft"),
        ({"attempt": 30, "soft": timedelta(minutes=1)}, "soft"),
        ({"grace": 0}, "grace"),
        ({"grace": None}, "grace"),
        ({"deadline": 60}, "deadline"),
        ({"deadline": timedelta(seconds=-1)}, "deadline"),
        ({"lease": 0}, "lease"),
    ],
)
def test_nonsense_is_refused_where_it_is_written(given: dict[str, object], named: str) -> None:
    with pytest.raises(ContractError) as caught:
        Timing(**given)  # type: ignore[arg-type]
    message = str(caught.value)
    assert message.startswith(f"Timing.{named}")
    assert "found" in message
    assert "expected" in message
    assert "To repair" in message


def test_a_timing_is_a_value() -> None:
    timing = Timing(attempt=30)
    assert timing == Timing(attempt=timedelta(seconds=30))
    assert hash(timing) == hash(Timing(attempt=30.0))
    assert replace(timing, soft=timedelta(seconds=5)) == Timing(attempt=30, soft=5)
    with pytest.raises(FrozenInstanceError):
        timing.attempt = None  # type: ignore[misc]
