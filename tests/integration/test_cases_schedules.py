"""Beats in processes of their own, on one schedule."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable

import pytest

from .fleet import Fleet, eventually

pytestmark = pytest.mark.integration

SCHEDULE = {"often": {"task": "tests.integration.app.note", "schedule": 1.0, "args": ["tick"]}}


def slots(fleet: Fleet) -> list[str]:
    """The slots that were enqueued, from the messages of all jobs."""
    payloads = [fleet.store.payload(job.id) for job in fleet.store.jobs(limit=1000)]
    return [json.loads(payload.headers)["guard_slot"] for payload in payloads if payload is not None]


@pytest.mark.smoke
def test_sched_1_a_slot_that_two_beats_send_runs_once(make_fleet: Callable[..., Fleet]) -> None:
    fleet = make_fleet("embedded", beat_schedule=SCHEDULE)
    fleet.worker("threads")
    beats = [fleet.beat(), fleet.beat()]
    eventually(lambda: len(slots(fleet)) >= 5, what="five slots")
    eventually(lambda: any("enqueued before, as job" in beat.output() for beat in beats), what="a second send")
    for beat in beats:
        assert beat.terminate() == 0
    fleet.all_quiet()
    assert set(Counter(slots(fleet)).values()) == {1}
    assert fleet.counted() == {"note tick": len(slots(fleet))}
    assert {job.state.value for job in fleet.store.jobs(limit=1000)} == {"succeeded"}
