"""Beats in processes of their own, on one schedule."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from .fleet import Fleet, eventually

pytestmark = pytest.mark.integration

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
    assert {job.state.value for job in fleet.store.jobs(limit=1000)} == {"succeeded"}
