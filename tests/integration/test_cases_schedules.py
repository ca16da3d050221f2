"""Beats in processes of their own, on one schedule."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from datetime import datetime, timedelta, timezone

import pytest

from celery_guard.job.tally import Count

from .fleet import Fleet, eventually

pytestmark = pytest.mark.integration

EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
SCHEDULE = {"often": {"task": "tests.integration.app.tick", "schedule": 1.0}}


def slots(fleet: Fleet) -> list[str]:
    """The slots that were enqueued, from the messages of all jobs."""
    payloads = [fleet.store.payload(job.id) for job in fleet.store.jobs(limit=1000)]
    return [json.loads(payload.headers)["guard_slot"] for payload in payloads if payload is not None]


@pytest.mark.smoke
def test_sched_1_a_slot_that_two_beats_send_runs_once_and_knows_which_it_is(make_fleet: Callable[..., Fleet]) -> None:
    """One beat in a process of its own, one inside the worker."""
    fleet = make_fleet("embedded", beat_schedule=SCHEDULE)
    worker = fleet.worker("prefork", 2, "-B", "-s", str(fleet.folder / "schedule"))
    beat = fleet.beat()
    eventually(lambda: len(slots(fleet)) >= 5, what="five slots")
    for process in (worker, beat):
        process.says("Sending due task often")
    eventually(lambda: "enqueued before, as job" in worker.output() + beat.output(), what="a second send")
    assert beat.terminate() == 0
    assert worker.terminate() == 0
    fleet.worker("threads")
    fleet.all_quiet()
    assert fleet.counted() == {f"tick {slot}": 1 for slot in slots(fleet)}
    jobs = fleet.store.jobs(limit=1000)
    assert {(job.state.value, job.schedule) for job in jobs} == {("succeeded", "often")}
    [last] = [one.total for one in fleet.store.counted() if one.what is Count.SCHEDULE_SUCCESS and one.task == "often"]
    assert last == max((job.finished - EPOCH) // timedelta(microseconds=1) for job in jobs if job.finished is not None)


def test_sched_1_runs_with_one_process_to_themselves_do_not_overlap_and_a_slot_that_waited_too_long_is_recorded(
    make_fleet: Callable[..., Fleet],
) -> None:
    """What the how-to says for want of an overlap policy: a queue with one worker process, and an expiry."""
    task = "tests.integration.app.poll"
    entry = {"task": task, "schedule": 1.0, "args": ["free"], "options": {"expires": 3.0}}
    fleet = make_fleet("embedded", beat_schedule={"often": entry}, task_routes={task: {"queue": "one-at-a-time"}})
    fleet.worker("prefork", 1, "-Q", "one-at-a-time", "-B", "-s", str(fleet.folder / "schedule"))

    def ends() -> Counter[tuple[str, str]]:
        jobs = fleet.store.jobs(limit=1000)
        return Counter((job.state.value, job.reason.value if job.reason else "") for job in jobs)

    eventually(fleet.marks, what="a slot runs")
    before = ends()["dead", "expired"]
    eventually(lambda: ends()["dead", "expired"] > before + 1, what="two slots have waited behind it for too long")
    assert fleet.marks() == ["poll"]
    fleet.raise_flag("free")
    eventually(lambda: fleet.counted()["poll done"] > 1, what="a later slot has run")
    marks = fleet.marks()
    assert marks == [("poll", "poll done")[number % 2] for number in range(len(marks))]
    # the first has run for longer than its own expiry, and has not asked
    first = fleet.job(fleet.lines()[0][1])
    assert first.state.value == "succeeded"
    assert {reason for state, reason in ends() if state == "dead"} == {"expired"}
