"""Beats that send the same tick, and ticks around a change of the clocks. Time is the test's; the schedulers are Celery's."""

from __future__ import annotations

import itertools
import json
import logging
from collections.abc import Callable
from datetime import datetime, timedelta, timezone
from typing import Any

import pytest
from celery import Celery, signals
from celery.beat import BeatLazyFunc, Scheduler, Service
from celery.schedules import crontab, schedule

from celery_guard import Contract, GuardedTask
from celery_guard.testing.conformance.builders import dead
from celery_guard.testing.conformance.moves import claim

UTC = timezone.utc


def start_of(app: Celery, scheduler: Scheduler) -> None:
    """What a beat service says when it starts."""
    service = Service(app)
    service.__dict__["scheduler"] = scheduler
    signals.beat_init.send(sender=service)


def audit_each_report(app: Celery) -> None:
    """Have the report send an audit besides, each time that it is sent."""

    def audit() -> None: ...

    def report() -> None: ...

    audited = app.task(audit, name="shop.audit", base=GuardedTask, shared=False)

    class Audited(GuardedTask):
        def apply_async(self, *args: Any, **options: Any) -> Any:
            audited.delay()
            return super().apply_async(*args, **options)

    app.task(report, name="shop.report", base=Audited, shared=False)


class Beat:
    """A beat with a clock of its own. There is no broker: each tick shows that none is needed."""

    def __init__(self, app: Celery, **entries: dict[str, Any]) -> None:
        self.now = datetime(2026, 1, 1, tzinfo=UTC)
        self.scheduler = Scheduler(app, lazy=True)
        for name, entry in entries.items():
            entry["schedule"].nowfun = lambda: self.now.astimezone(app.timezone)
            self.scheduler.add(name=name, **entry)
        start_of(app, self.scheduler)

    def start(self, now: datetime) -> None:
        """From here on its entries count."""
        self.now = now
        for entry in self.scheduler.schedule.values():
            entry.last_run_at = entry.default_now()

    def tick(self, now: datetime) -> None:
        """All that is due then."""
        self.now = now
        while self.scheduler.tick() == 0:
            pass

    def live(self, start: datetime, end: datetime, step: timedelta = timedelta(seconds=30)) -> None:
        self.start(start)
        while self.now < end:
            self.tick(self.now + step)

    def send(self, name: str, now: datetime) -> Any:
        """A scheduler that believes this entry to be due."""
        self.now = now
        return self.scheduler.apply_async(self.scheduler.schedule[name])


@pytest.fixture
def report(app: Celery) -> Any:
    def report(day: str = "today") -> None: ...

    return app.task(report, name="shop.report", base=GuardedTask, shared=False)


def slots(app: Celery, stored: Callable[[str], Any]) -> list[str]:
    """The slots that were enqueued, oldest first, from the messages."""
    return sorted(stored(job.id)[1]["guard_slot"] for job in app.guard.store.jobs(limit=1000))


def at(hour: int, minute: int = 0, second: int = 0, day: int = 10) -> datetime:
    return datetime(2026, 1, day, hour, minute, second, tzinfo=UTC)


def noon(**given: Any) -> dict[str, Any]:
    return {"task": "shop.report", "schedule": crontab("0", "12"), **given}


def test_sched_1_two_beats_that_both_lead_enqueue_a_tick_once(
    app: Celery, report: Any, stored: Callable[[str], Any], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "celery_guard.enqueue")
    first, second = Beat(app, nightly=noon()), Beat(app, nightly=noon())
    first.start(at(11))
    second.start(at(11, 0, 7))
    first.tick(at(12))
    second.tick(at(12, 0, 3))
    assert slots(app, stored) == ["2026-01-10T12:00:00+00:00"]
    assert "schedule nightly, slot 2026-01-10T12:00:00+00:00: enqueued before" in caplog.text


def test_sched_1_a_leader_that_was_paused_names_the_slot_that_others_sent_meanwhile(
    app: Celery, report: Any, stored: Callable[[str], Any]
) -> None:
    minutely = {"task": "shop.report", "schedule": crontab()}
    paused, other = Beat(app, often=dict(minutely)), Beat(app, often={**minutely, "schedule": crontab()})
    paused.start(at(11, 58, 30))
    other.live(at(11, 58, 30), at(12, 2, 30))
    paused.tick(at(12, 2, 40))
    assert slots(app, stored) == [f"2026-01-10T{time}:00+00:00" for time in ("11:59", "12:00", "12:01", "12:02")]


def test_sched_1_a_tick_whose_job_is_dead_by_now_is_not_enqueued_again(app: Celery, report: Any) -> None:
    """A key would be free again by then; an id is not."""
    store = app.guard.store
    first, second = Beat(app, nightly=noon()), Beat(app, nightly=noon())
    sent = first.send("nightly", at(12))
    assert store.take("relay", 10, timedelta(hours=1))
    assert store.settle(dead(claim(store, sent.id)))
    again = second.send("nightly", at(12, 0, 3))
    assert (again.id, again.duplicate) == (sent.id, True)
    assert [job.state.value for job in store.jobs()] == ["dead"]


def test_sched_1_schedules_whose_names_databases_refuse_are_stored_and_stay_two(app: Celery, report: Any) -> None:
    names = ("nightly\x00", "nightly\udcff")
    beat = Beat(app, **{name: noon() for name in names})
    sent = {beat.send(name, at(12)).id for name in names}
    assert {(job.id, job.schedule) for job in app.guard.store.jobs()} == {(id, "nightly\ufffd") for id in sent}
    assert len(sent) == 2


def test_sched_1_arguments_that_each_beat_works_out_for_itself_make_no_conflict(app: Celery, report: Any) -> None:
    first, second = (Beat(app, nightly=noon(args=(BeatLazyFunc(day),))) for day in (lambda: "one", lambda: "two"))
    sent = first.send("nightly", at(12))
    again = second.send("nightly", at(12, 0, 3))
    assert (again.id, again.duplicate) == (sent.id, True)
    assert len(app.guard.store.jobs()) == 1


def test_sched_1_the_next_slot_is_another_job(app: Celery, report: Any) -> None:
    beat = Beat(app, nightly=noon())
    assert beat.send("nightly", at(12)).id != beat.send("nightly", at(12, day=11)).id
    assert len(app.guard.store.jobs()) == 2


def test_sched_1_two_schedules_of_one_task_are_told_apart(app: Celery, report: Any) -> None:
    beat = Beat(app, europe=noon(args=("europe",)), asia=noon(args=("asia",)))
    beat.start(at(11))
    beat.tick(at(12))
    assert len(app.guard.store.jobs()) == 2


def test_sched_1_a_beat_that_was_away_sends_the_latest_slot_once(
    app: Celery, report: Any, stored: Callable[[str], Any]
) -> None:
    beat = Beat(app, often={"task": "shop.report", "schedule": crontab("*/5")})
    beat.start(at(11, 58))
    beat.tick(at(12, 17))
    assert slots(app, stored) == ["2026-01-10T12:15:00+00:00"]


def test_sched_1_beats_whose_intervals_are_out_of_step_run_once_a_stretch(
    app: Celery, report: Any, stored: Callable[[str], Any]
) -> None:
    beats = [Beat(app, often={"task": "shop.report", "schedule": schedule(timedelta(seconds=30))}) for _ in range(2)]
    for beat, phase in zip(beats, (0, 11), strict=True):
        beat.live(at(12, 0, phase), at(12, 10), timedelta(seconds=1))
    found = slots(app, stored)
    assert len(found) == len({*found}) == 20


def test_sched_1_one_beat_loses_no_run_of_an_interval(app: Celery, report: Any) -> None:
    """Its ticks drift over the edges of the grid, each a little later than the interval."""
    beat = Beat(app, often={"task": "shop.report", "schedule": schedule(timedelta(seconds=1))})
    beat.start(at(12))
    sent = [beat.send("often", at(12) + timedelta(milliseconds=1003 * n)) for n in range(60)]
    assert not any(handle.duplicate for handle in sent)


@pytest.mark.parametrize(
    "stretch",
    [
        timedelta(hours=36),
        timedelta(hours=2, minutes=30),
        timedelta(minutes=90),
        timedelta(seconds=150),
        timedelta(seconds=90),
        timedelta(hours=1),
    ],
    ids=str,
)
def test_sched_1_a_relative_schedule_loses_no_run_however_odd_its_stretch(
    app: Celery, report: Any, stored: Callable[[str], Any], stretch: timedelta
) -> None:
    """Celery rounds its runs down to whole days, hours or minutes: every 90 minutes is every hour."""
    sent: list[Any] = []
    beat = Beat(app, often={"task": "shop.report", "schedule": schedule(stretch, relative=True)})
    plain = beat.scheduler.apply_async
    beat.scheduler.apply_async = lambda *args, **kwargs: sent.append(plain(*args, **kwargs))
    beat.live(at(12, 7, 13), at(12, 7, 13) + stretch * 8, stretch / 97)
    assert len(sent) >= 7
    assert [handle.duplicate for handle in sent] == [False] * len(sent)
    assert len({*slots(app, stored)}) == len(sent)


@pytest.mark.parametrize("stretch", [timedelta(minutes=90), timedelta(hours=2, minutes=30)], ids=str)
def test_sched_1_two_beats_of_a_relative_schedule_run_once_a_stretch(
    app: Celery, report: Any, stored: Callable[[str], Any], stretch: timedelta
) -> None:
    for phase in (0, 61):
        entry = {"task": "shop.report", "schedule": schedule(stretch, relative=True)}
        Beat(app, often=entry).live(at(2, phase % 60 + phase // 60), at(14), timedelta(minutes=1))
    found = [datetime.fromisoformat(slot) for slot in slots(app, stored)]
    whole = timedelta(hours=stretch // timedelta(hours=1))
    assert {later - earlier for earlier, later in itertools.pairwise(found)} == {whole}


def test_sched_1_a_contract_with_a_key_of_its_own_keeps_it(app: Celery) -> None:
    def sync(tenant: str) -> None: ...

    app.task(sync, name="shop.sync", base=GuardedTask, shared=False, contract=Contract(key="tenant"))
    entry = {"task": "shop.sync", "schedule": crontab("0", "12"), "kwargs": {"tenant": "acme"}}
    sent = Beat(app, nightly=dict(entry)).send("nightly", at(12))
    job = app.guard.store.job(sent.id)
    assert job is not None
    assert job.key is not None
    app_sent = app.tasks["shop.sync"].delay(tenant="acme")
    assert (app_sent.id, app_sent.duplicate) == (sent.id, True)


def test_sched_1_what_a_task_sends_besides_has_no_slot(app: Celery) -> None:
    audit_each_report(app)
    beat = Beat(app, nightly=noon())
    beat.send("nightly", at(12))
    beat.send("nightly", at(12, 0, 3))
    assert sorted(job.task for job in app.guard.store.jobs()) == ["shop.audit", "shop.audit", "shop.report"]


def test_sched_1_a_schedule_whose_slots_nobody_knows_is_sent_and_said_aloud(
    app: Celery, report: Any, caplog: pytest.LogCaptureFixture
) -> None:
    class Odd(schedule):  # type: ignore[misc]
        def remaining_estimate(self, last_run_at: datetime) -> timedelta:
            return timedelta(0)

    beat = Beat(app, odd={"task": "shop.report", "schedule": Odd(timedelta(hours=1))})
    assert beat.send("odd", at(12)).id != beat.send("odd", at(12)).id
    assert "schedule odd is a Odd, whose slots the guard does not know" in caplog.text


def test_sched_1_a_beat_of_an_app_without_a_guard_is_left_alone() -> None:
    plain = Celery("plain", set_as_current=False)
    scheduler = Scheduler(plain, lazy=True)
    start_of(plain, scheduler)
    assert "apply_async" not in vars(scheduler)


# -- the clocks change ----------------------------------------------------------------------------------------------------


@pytest.fixture
def in_new_york(make_app: Callable[..., Celery]) -> Celery:
    app = make_app(timezone="America/New_York")

    def report() -> None: ...

    app.task(report, name="shop.report", base=GuardedTask, shared=False)
    return app


def november(hour: int, minute: int = 0, day: int = 1) -> datetime:
    return datetime(2026, 11, day, hour, minute, tzinfo=UTC)


def march(hour: int, minute: int = 0, day: int = 8) -> datetime:
    return datetime(2026, 3, day, hour, minute, tzinfo=UTC)


def entry(*fields: str) -> dict[str, Any]:
    return {"task": "shop.report", "schedule": crontab(*fields)}


def stored_slots(app: Celery) -> list[str]:
    payloads = [app.guard.store.payload(job.id) for job in app.guard.store.jobs(limit=1000)]
    return sorted(json.loads(payload.headers)["guard_slot"] for payload in payloads if payload is not None)


def test_sched_2_an_hourly_job_that_is_sent_in_both_of_a_repeated_hour_runs_in_both(in_new_york: Celery) -> None:
    beat = Beat(in_new_york, hourly=entry("0"))
    sent = [beat.send("hourly", november(hour)) for hour in (4, 5, 6, 7)]
    assert len({handle.id for handle in sent}) == 4


def test_sched_2_a_daily_job_that_is_sent_at_both_of_a_repeated_time_runs_once(in_new_york: Celery) -> None:
    beat = Beat(in_new_york, daily=entry("30", "1"))
    assert beat.send("daily", november(5, 30)).id == beat.send("daily", november(6, 30)).id
    assert stored_slots(in_new_york) == ["2026-11-01T05:30:00+00:00"]


@pytest.mark.parametrize(
    ("fields", "autumn", "spring"),
    [
        (("30", "1"), ["11-01T05:30", "11-02T06:30"], ["03-08T06:30", "03-09T05:30"]),
        (("30", "2"), ["11-01T07:30", "11-02T07:30"], ["03-08T07:00", "03-09T06:30"]),
    ],
    ids=["01:30", "02:30"],
)
def test_sched_2_celerys_own_ticks_run_a_daily_job_once_a_day_over_each_change(
    in_new_york: Celery, fields: tuple[str, str], autumn: list[str], spring: list[str]
) -> None:
    """Two beats out of step; the time that is left out in spring runs once, whenever this Celery sends it."""
    for start in (november(3), march(5)):
        for late in (0, 7):
            beat = Beat(in_new_york, daily=entry(*fields))
            beat.live(start + timedelta(seconds=late), start + timedelta(days=1, hours=6))
    expected = sorted([*autumn, *spring])
    assert [slot[5:16] for slot in stored_slots(in_new_york)] == expected


def test_sched_2_celerys_own_ticks_of_an_hourly_job_are_never_two_in_one_hour(in_new_york: Celery) -> None:
    """Celery's beat leaves out the second of the repeated hour; what it sends is enqueued once."""
    for late in (0, 7):
        for start in (november(3, 30), march(4, 30)):
            beat = Beat(in_new_york, hourly=entry("0"))
            beat.live(start + timedelta(seconds=late), start + timedelta(hours=5))
    found = [slot[5:16] for slot in stored_slots(in_new_york)]
    assert len(found) == len({*found})
    assert [slot for slot in found if slot < "11"] == [f"03-08T{hour:02}:00" for hour in (5, 6, 7, 8, 9)]
    assert [slot for slot in found if slot > "11" and slot != "11-01T06:00"] == [
        f"11-01T{hour:02}:00" for hour in (4, 5, 7, 8)
    ]
