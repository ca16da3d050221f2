"""What a beat of a guarded app does beside the slots: how it starts, what it names, and what it leaves to Celery."""

from __future__ import annotations

from typing import Any

import click
import pytest
from celery import Celery
from celery.beat import Scheduler
from celery.schedules import schedule

from celery_guard import GuardedTask, StoreSchemaError, StoreUnavailableError
from celery_guard.errors import COMMAND

from .test_cases_schedules import Beat, at, audit_each_report, noon


@pytest.fixture
def reported(app: Celery) -> None:
    def report() -> None: ...

    app.task(report, name="shop.report", base=GuardedTask, shared=False)


def test_a_beat_on_tables_that_are_too_old_does_not_start(app: Celery, monkeypatch: pytest.MonkeyPatch) -> None:
    def old() -> None:
        raise StoreSchemaError(f"too old. Run `{COMMAND} store upgrade`.")

    monkeypatch.setattr(app.guard.store, "check", old)
    typed = click.Context(click.Command("celery"))
    for named, shown in ((app, "app"), ("shop.tasks", "shop.tasks")):
        typed.params["app"] = named
        with typed.scope(), pytest.raises(SystemExit) as ended:
            Beat(app, nightly=noon())
        expected = f"The beat does not start [GUARD-302]: too old. Run `celery -A {shown} guard store upgrade`."
        assert str(ended.value) == expected


@pytest.mark.usefixtures("reported")
def test_a_beat_starts_before_its_store_can_be_reached_and_says_so(
    app: Celery, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def away() -> None:
        raise StoreUnavailableError("away")

    with monkeypatch.context() as patch:
        patch.setattr(app.guard.store, "check", away)
        beat = Beat(app, nightly=noon())
    assert "the store cannot be reached yet" in caplog.text
    assert app.guard.store.job(beat.send("nightly", at(12)).id) is not None


def test_a_job_knows_which_schedule_sent_it_and_what_that_sends_besides_knows_none(app: Celery) -> None:
    audit_each_report(app)

    class Clocked(schedule):  # type: ignore[misc]
        clocked_time = at(12)

    odd = "x" * 300
    beat = Beat(app, nightly=noon(), once={"task": "shop.report", "schedule": Clocked(60)}, **{odd: noon()})
    for name in ("nightly", "once", odd):
        beat.send(name, at(12))
    app.tasks["shop.report"].delay()
    jobs = app.guard.store.jobs()
    assert sorted(str(job.schedule) for job in jobs if job.task == "shop.report") == [
        "None",
        "None",
        "nightly",
        "x" * 255,
    ]
    assert {job.schedule for job in jobs if job.task == "shop.audit"} == {None}


@pytest.mark.usefixtures("reported")
def test_what_has_no_guard_is_sent_by_the_producer_of_the_scheduler_once_it_can_connect(
    app: Celery, monkeypatch: pytest.MonkeyPatch
) -> None:
    connected: list[Scheduler] = []

    def connect(scheduler: Scheduler) -> Any:
        connected.append(scheduler)
        raise ConnectionError("no broker")

    monkeypatch.setattr(Scheduler, "_ensure_connected", connect)

    def plain() -> None: ...

    app.task(plain, name="shop.plain", shared=False)
    beat = Beat(app, nightly=noon(), plain=noon(task="shop.plain"))
    beat.start(at(11))
    beat.tick(at(12))
    assert [job.task for job in app.guard.store.jobs()] == ["shop.report"]
    assert set(connected) == {beat.scheduler}
