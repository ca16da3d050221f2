"""The rule by which a replay goes on or stops itself."""

from __future__ import annotations

from datetime import datetime, timezone
from typing import Any

import pytest

from celery_guard.job.replay import ItemState, Progress, Replay, ReplayState, why_stop, window

S, F, T, R = ItemState.SUCCEEDED, ItemState.FAILED, ItemState.FAILING, ItemState.RELEASED


def replay(**given: Any) -> Replay:
    values: dict[str, Any] = dict.fromkeys(("actor", "role", "origin", "reason", "target"), "")
    return Replay("r", ReplayState.RUNNING, **values, created=datetime.now(timezone.utc), **given)


def seen(wave: dict[ItemState, int], same_cause: int = 0, waiting: int = 100) -> Progress:
    return Progress(wave, same_cause, waiting, bool(wave.get(R) or wave.get(T)))


def test_waves_grow_from_one_job_and_stop_growing() -> None:
    assert [window(wave, 1) for wave in range(1, 9)] == [1, 5, 20, 80, 320, 500, 500, 500]


def test_a_ramp_that_begins_anew_begins_with_one_job() -> None:
    assert [window(wave, 7) for wave in (7, 8, 9)] == [1, 5, 20]


def test_the_first_job_that_fails_again_stops_it() -> None:
    assert "1 of 1 jobs of wave 1" in why_stop(replay(), seen({F: 1}))
    assert "1 of 1" in why_stop(replay(), seen({T: 1}))
    assert why_stop(replay(), seen({S: 1})) == ""
    assert why_stop(replay(), seen({R: 1})) == ""


@pytest.mark.parametrize(("failed", "stops"), [(4, False), (5, True)])
def test_a_share_of_a_wave_that_fails_again_stops_it_without_waiting_for_the_rest(failed: int, stops: bool) -> None:
    assert bool(why_stop(replay(wave=3), seen({F: failed, R: 20 - failed}))) is stops
    assert bool(why_stop(replay(wave=3), seen({F: failed, R: 3}))) is stops


def test_what_is_left_is_the_size_of_the_last_wave() -> None:
    assert (
        why_stop(replay(wave=3), seen({F: 1, S: 2}, waiting=0))
        == "1 of 3 jobs of wave 3 have failed again, more than 20 %"
    )


def test_a_cause_that_comes_back_stops_it() -> None:
    said = "6 of 106 jobs died again of the cause they had died of before, more than 5 %"
    assert why_stop(replay(wave=4), seen({F: 6, S: 74}, same_cause=6)) == said
    assert why_stop(replay(wave=4), seen({F: 5, S: 75}, same_cause=5)) == ""
    assert why_stop(replay(wave=4, same_cause=0), seen({F: 2, S: 78}, same_cause=2)).endswith("more than 0 %")


def test_one_letter_that_nothing_can_repair_does_not_stop_the_others() -> None:
    assert why_stop(replay(wave=2, stop_share=20), seen({F: 1, S: 4}, same_cause=1)) == ""
    assert why_stop(replay(wave=2, same_cause=0), seen({F: 1, S: 4}, same_cause=1)) == ""


def test_a_ramp_that_was_begun_anew_counts_from_there() -> None:
    assert "2 of 6 jobs" in why_stop(replay(wave=8, run=7, stop_share=100), seen({F: 2, S: 3}, same_cause=2))


def test_it_is_over_when_nothing_waits_and_nothing_is_on_its_way() -> None:
    assert seen({S: 3, F: 1, ItemState.SKIPPED: 2}, waiting=0).over
    assert not seen({S: 3}, waiting=1).over
    for state in (R, T):
        assert not seen({S: 3, state: 1}, waiting=0).over
