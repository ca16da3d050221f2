"""The embedded broker under real workers: a pool's processes may die at any moment, and the worker goes on."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from celery_guard.operate.demo.nodes import children

from .fleet import Fleet, eventually

pytestmark = pytest.mark.integration


@pytest.fixture
def fleet(make_fleet: Callable[..., Fleet], tmp_path: Path) -> Fleet:
    return make_fleet("embedded", own_broker=f"files://localhost{tmp_path}/broker")


def test_a_worker_goes_on_when_the_idle_processes_of_its_pool_are_killed(fleet: Fleet) -> None:
    fleet.relay()
    worker = fleet.worker(CELERY_GUARD_RELAY="false")
    for number in range(3):
        assert fleet.app.add.delay(number, 1).get(timeout=30) == number + 1
        killed = eventually(lambda: len(found := children(worker.process.pid)) >= 2 and found, what="a full pool")
        for pid in killed:
            os.kill(pid, signal.SIGKILL)
        gone = set(killed)
        eventually(partial(_all_gone, worker.process.pid, gone), what="the dead are gone")
    assert fleet.app.add.delay(9, 1).get(timeout=30) == 10


def test_messages_that_a_killed_node_had_taken_are_delivered_to_another(fleet: Fleet) -> None:
    fleet.relay(CELERY_GUARD_SUSPECT_AFTER="1h")
    first = fleet.worker("prefork", 1, CELERY_GUARD_RELAY="false")
    running = fleet.app.wait_for.delay("never")
    eventually(lambda: "wait_for" in fleet.marks(), what="the body runs")
    waiting = fleet.app.add.delay(1, 2)
    taken = Path(fleet.environment["APP_BROKER"].removeprefix("files://localhost")) / "taken"
    eventually(lambda: any(taken.iterdir()), what="the second message is taken")
    first.kill()
    fleet.worker("prefork", 1, CELERY_GUARD_RELAY="false")
    # the sweep does not suspect it within the test: it is the broker that brings it back
    assert waiting.get(timeout=30) == 3
    fleet.raise_flag("never")
    assert running.get(timeout=30) == "never"


def _all_gone(parent: int, dead: set[int]) -> bool:
    return not dead & set(children(parent))
