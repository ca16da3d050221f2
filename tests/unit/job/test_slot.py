"""Which slot a moment belongs to."""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime, timedelta, timezone
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from celery_guard.job.slot import Cron, Every, Slot

UTC = timezone.utc
NEW_YORK = ZoneInfo("America/New_York")
LONDON = ZoneInfo("Europe/London")
ALL_HOURS = range(24)
#: Every moment of a year.
MOMENTS = st.integers(0, 365 * 86_400).map(lambda second: utc(2026, 1, 1) + timedelta(seconds=second))


def cron(minutes: Collection[int], hours: Collection[int] = ALL_HOURS, **given: Collection[int]) -> Cron:
    days, months, weekdays = (given.get(name) for name in ("days", "months", "weekdays"))
    return Cron(minutes, hours, days or range(1, 32), months or range(1, 13), weekdays or range(7), NEW_YORK)


def utc(*when: int) -> datetime:
    return datetime(*when, tzinfo=UTC)  # type: ignore[misc, arg-type]


def test_the_slot_is_the_latest_that_has_begun() -> None:
    nightly = cron([0], [12])
    assert nightly.latest(utc(2026, 1, 10, 17, 0)) == utc(2026, 1, 10, 17)
    assert nightly.latest(utc(2026, 1, 10, 17, 0, 59)) == utc(2026, 1, 10, 17)
    assert nightly.latest(utc(2026, 1, 10, 16, 59, 59)) == utc(2026, 1, 9, 17)
    assert nightly.latest(utc(2026, 1, 11, 3)) == utc(2026, 1, 10, 17)


def test_all_three_fields_of_the_date_have_to_agree() -> None:
    friday_13 = cron([0], [0], days=[13], weekdays=[5])
    assert friday_13.latest(utc(2026, 11, 29)) == utc(2026, 11, 13, 5)
    assert friday_13.latest(utc(2026, 11, 12)) == utc(2026, 3, 13, 4)


def test_a_leap_day_is_found_over_years() -> None:
    assert cron([0], [0], days=[29], months=[2]).latest(utc(2027, 6, 1)) == utc(2024, 2, 29, 5)


def test_a_day_that_never_comes_has_no_slot() -> None:
    assert cron([0], [0], days=[31], months=[2]).latest(utc(2027, 6, 1)) is None


def test_sched_2_an_hourly_schedule_has_a_slot_in_both_of_a_repeated_hour() -> None:
    hourly = cron([0])
    at = [hourly.latest(utc(2026, 11, 1, hour, 10)) for hour in (4, 5, 6, 7)]
    assert at == [utc(2026, 11, 1, hour) for hour in (4, 5, 6, 7)]


def test_sched_2_a_daily_time_that_comes_twice_is_one_slot_the_first() -> None:
    daily = cron([30], [1])
    assert daily.latest(utc(2026, 11, 1, 5, 30)) == utc(2026, 11, 1, 5, 30)
    assert daily.latest(utc(2026, 11, 1, 6, 30)) == utc(2026, 11, 1, 5, 30)
    assert daily.latest(utc(2026, 11, 2, 6, 30)) == utc(2026, 11, 2, 6, 30)


def test_sched_2_a_time_that_is_left_out_is_one_slot_when_the_clocks_go_forward() -> None:
    for minutes in ([30], [0, 15, 30, 45]):
        daily = cron(minutes, [2])
        assert daily.latest(utc(2026, 3, 8, 6, 59, 59)) == utc(2026, 3, 7, 7, max(minutes))
        assert daily.latest(utc(2026, 3, 8, 7, 0)) == utc(2026, 3, 8, 7)
        assert daily.latest(utc(2026, 3, 8, 7, 30)) == utc(2026, 3, 8, 7)
        assert daily.latest(utc(2026, 3, 9, 6, min(minutes))) == utc(2026, 3, 9, 6, min(minutes))


@given(MOMENTS, st.sampled_from([1, 5, 15, 60]))
def test_sched_2_slots_only_go_forward(now: datetime, step: int) -> None:
    """Over every change of the clocks: no later moment has an earlier slot, and no slot lies ahead."""
    for schedule in (cron([0, 20, 40]), cron([30], [1, 2, 3]), Every(timedelta(hours=1), NEW_YORK)):
        before, after = schedule.latest(now), schedule.latest(now + timedelta(minutes=step))
        assert before is not None
        assert after is not None
        assert before <= now
        assert before <= after


def test_a_stretch_begins_where_the_grid_says() -> None:
    every = Every(timedelta(seconds=30))
    assert every.latest(utc(2026, 1, 1, 0, 0, 29)) == utc(2026, 1, 1)
    assert every.latest(utc(2026, 1, 1, 0, 0, 30)) == utc(2026, 1, 1, 0, 0, 30)


@given(MOMENTS, st.integers(1, 10**11), st.integers(0, 10**9))
def test_two_runs_that_are_a_stretch_apart_are_never_one_slot(now: datetime, length: int, late: int) -> None:
    stretch = timedelta(microseconds=length)
    every = Every(stretch)
    assert every.latest(now) < every.latest(now + stretch + timedelta(microseconds=late))


@pytest.mark.parametrize("month", [3, 10])
def test_sched_2_days_by_the_local_clock_are_days_though_one_is_shorter(month: int) -> None:
    every = Every(timedelta(days=1), LONDON)
    midnights = [datetime(2026, month, day, tzinfo=LONDON) for day in range(20, 32)]
    for late in (timedelta(0), timedelta(hours=5), timedelta(hours=22)):
        assert [every.latest(midnight.astimezone(UTC) + late) for midnight in midnights] == midnights


def test_the_id_of_a_slot_is_the_same_in_every_version() -> None:
    """Two versions of the guard may schedule side by side while a fleet is deployed."""
    assert Slot("nightly", "shop.report", utc(2026, 1, 1)).id == "74af97e1-817a-56a0-82e1-30fd8c51e631"


def test_another_slot_has_another_id() -> None:
    slots = [
        Slot("nightly", "shop.report", utc(2026, 1, 1)),
        Slot("hourly", "shop.report", utc(2026, 1, 1)),
        Slot("nightly", "shop.other", utc(2026, 1, 1)),
        Slot("nightly", "shop.report", utc(2026, 1, 2)),
    ]
    assert len({slot.id for slot in slots}) == 4
