"""A job that is held because its message is newer than the workers that met it."""

from __future__ import annotations

import random
from datetime import datetime, timedelta, timezone
from typing import Any

import pytest

from celery_guard.contract.contract import Effective
from celery_guard.errors import PayloadVersionError
from celery_guard.job.conclude import conclude, held_since
from celery_guard.job.decide import after_hold
from celery_guard.job.delivery import Again, Dead, Delivery
from celery_guard.job.outcome import Held
from celery_guard.job.row import StoredFailure
from celery_guard.job.state import Reason, State
from celery_guard.settings import read_settings

from .test_decide import granted

DAY = timedelta(days=1)
NEWER = PayloadVersionError("order is Order of version 3; this worker reads up to version 2.", 3)
AT = datetime(2026, 1, 2, tzinfo=timezone.utc)


def settled(waited: timedelta | None, **contract: Any) -> Any:
    settings = read_settings({"store": "sqlite://", "hold_version": "1d"}, {}, {})
    delivery = Delivery("j", "t", Effective(task="t", **contract), "w", tells_success=True, tells_failure=True)
    return conclude(delivery, granted(), Held(NEWER, waited), timedelta(0), settings, random.Random(1))


@pytest.mark.parametrize("seconds", [None, 1, 2, 4, 60, 300, 3600])
def test_each_wait_is_about_as_long_as_all_before_it_up_to_a_bound(seconds: int | None) -> None:
    waited = None if seconds is None else timedelta(seconds=seconds)
    longest = timedelta(seconds=min(300, max(1, seconds or 0)))
    for seed in range(50):
        next = after_hold(granted(), waited, DAY, Effective(task="t"), random.Random(seed))
        assert (next.state, next.reason) == (State.PENDING, Reason.HELD_VERSION)
        assert longest / 2 <= next.delay <= longest


def test_the_last_wait_ends_at_the_bound() -> None:
    next = after_hold(granted(), DAY - timedelta(seconds=3), DAY, Effective(task="t"), random.Random(1))
    assert next.delay == timedelta(seconds=3)


def test_it_is_not_charged_and_noted_once() -> None:
    first, ending = settled(None)
    assert (first.state, first.charged, first.retried) == (State.PENDING, False, False)
    assert (first.failure.failure_class, first.failure.type_name) == (
        "control", "celery_guard.errors.PayloadVersionError"
    )  # fmt: skip
    assert isinstance(ending, Again)
    again, _ = settled(timedelta(seconds=5))
    assert (again.state, again.charged, again.failure) == (State.PENDING, False, None)


@pytest.mark.parametrize(("best_effort", "state"), [(False, State.DEAD), (True, State.DROPPED)])
def test_at_the_bound_it_is_dead_and_still_not_charged(best_effort: bool, state: State) -> None:
    last, ending = settled(DAY, best_effort=best_effort)
    assert (last.state, last.reason, last.charged) == (state, Reason.HELD_VERSION, False)
    assert last.failure.failure_class == "permanent"
    assert isinstance(ending, Dead)


def note(failure_class: str = "control", type_name: str = "celery_guard.errors.PayloadVersionError") -> StoredFailure:
    return StoredFailure(failure_class, type_name, "m", "", "c", "w", at=AT)


def test_a_wait_is_counted_from_its_own_note() -> None:
    failed = note("transient", "builtins.ConnectionError")
    assert held_since([]) is None
    assert held_since([failed, note()]) == AT
    assert held_since([note(), note("superseded")]) == AT
    # it has run since, or was dead and is replayed: another wait
    assert held_since([note(), failed]) is None
    assert held_since([note(), note("permanent")]) is None
