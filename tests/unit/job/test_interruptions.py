"""A job whose attempts are cut short by what has nothing to do with it."""

from __future__ import annotations

import random
from datetime import timedelta
from typing import Any

import pytest

from celery_guard.contract.contract import Effective
from celery_guard.errors import KeyBusy
from celery_guard.job.conclude import conclude
from celery_guard.job.delivery import Again, Dead, Delivery
from celery_guard.job.outcome import Contended, Interrupted, Outcome, Returned
from celery_guard.job.state import Reason, State
from celery_guard.settings import read_settings

from .test_decide import granted

SHUTDOWN = Interrupted(SystemExit(0), by_shutdown=True)
CONTENDED = Contended(KeyBusy("The key of ship, which follows, is being taken by another open transaction."))
WHY = {SHUTDOWN: Reason.INTERRUPTED, CONTENDED: Reason.HELD_KEY}
NONE = timedelta(0)


def settled(outcome: Outcome, before: int, seed: int = 1, **contract: Any) -> Any:
    settings = read_settings({"store": "sqlite://", "max_interruptions": 100}, {}, {})
    delivery = Delivery("j", "t", Effective(task="t", **contract), "w", tells_success=True, tells_failure=True)
    return conclude(delivery, granted(interruptions=before), outcome, NONE, settings, random.Random(seed))


@pytest.mark.parametrize("outcome", [SHUTDOWN, CONTENDED], ids=["shutdown", "contended"])
@pytest.mark.parametrize("before", [0, 2, 3, 20, 98])
def test_an_attempt_that_was_cut_short_is_counted_as_an_interruption_only(outcome: Any, before: int) -> None:
    written, ending = settled(outcome, before)
    assert (written.state, written.reason, written.interrupted) == (State.PENDING, WHY[outcome], True)
    assert (written.charged, written.retried, written.crashed) == (False, False, False)
    assert isinstance(ending, Again)


def test_the_first_interruptions_cost_no_delay() -> None:
    assert [settled(SHUTDOWN, before)[0].delay for before in range(3)] == [NONE] * 3


@pytest.mark.parametrize(
    ("outcome", "before", "most"),
    [
        (SHUTDOWN, 3, 1),
        (SHUTDOWN, 6, 8),
        (SHUTDOWN, 90, 300),
        (CONTENDED, 0, 1),
        (CONTENDED, 3, 8),
        (CONTENDED, 90, 300),
    ],
)
def test_after_that_the_delays_are_full_jitter_under_a_growing_cap(outcome: Any, before: int, most: int) -> None:
    delays = [settled(outcome, before, seed)[0].delay for seed in range(200)]
    assert NONE <= min(delays) < timedelta(seconds=most * 0.1)
    assert timedelta(seconds=most * 0.9) < max(delays) <= timedelta(seconds=most)


@pytest.mark.parametrize("outcome", [SHUTDOWN, CONTENDED], ids=["shutdown", "contended"])
def test_a_job_that_is_never_let_to_its_end_is_dead_in_the_end(outcome: Any) -> None:
    written, ending = settled(outcome, 99)
    assert (written.state, written.reason, written.charged) == (State.DEAD, WHY[outcome], False)
    assert written.failure.message == str(outcome.error)
    assert isinstance(ending, Dead)
    assert settled(outcome, 99, best_effort=True)[0].state is State.DROPPED


def test_an_attempt_that_ends_by_itself_starts_the_count_anew() -> None:
    assert settled(Returned(None), 50)[0].interrupted is False
