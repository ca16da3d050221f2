"""The app of the kill points: one task for each way a job's end is written, and points in all that it passes.

The points are there in processes that ask for them (see ``celery_guard.testing.faults``), so never in the test's own.
"""

from __future__ import annotations

import gc
import json
import os
import sys
from datetime import timedelta
from pathlib import Path
from typing import Any

from celery.signals import worker_before_create_process
from sqlalchemy import text

from celery_guard import GuardedTask
from celery_guard.integrations.celery.relay import make_relay
from celery_guard.integrations.celery.runtime import runtime_of
from celery_guard.testing.faults import RECORD, Faults
from celery_guard.testing.steps import install, install_from
from tests.model.trace import Recorder

from .app import app, chain, guard, mark, task

__all__ = ["app", "book", "chain", "guard", "mark", "part", "relay_in_children", "step", "sum_up", "work"]


@worker_before_create_process.connect(weak=False)
def _fork_lightly(**_: Any) -> None:
    """Celery collects garbage before each fork. Where children die by the dozen, what is there already is no garbage."""
    gc.freeze()


@task(base=GuardedTask, bind=True)
def work(self: Any, value: int) -> int:
    """A plain job, and the head of a chain."""
    mark("work", self)
    return value + 1


@task(base=GuardedTask, bind=True)
def step(self: Any, value: int) -> int:
    """What follows: the chain's next step, or a link."""
    mark(f"step {value}", self)
    return value * 10


@task(base=GuardedTask, bind=True)
def part(self: Any, value: int) -> int:
    """A member of a chord."""
    mark("part", self)
    return value


@task(base=GuardedTask, bind=True)
def sum_up(self: Any, values: list[int]) -> int:
    """The body of a chord."""
    mark(f"sum {sorted(values)}", self)
    return sum(values)


@task(base=GuardedTask, bind=True)
def book(self: Any, value: int) -> int:
    """Writes through the guard, and enqueues: both are to happen with its end, once."""
    mark("book", self)
    self.job.transaction().execute(text("INSERT INTO shop_booking (job) VALUES (:job)"), {"job": self.job.id})
    step.delay(value)
    return value + 1


def relay_in_children() -> None:
    """Relay in a child for each point that a relay passes, and print how each child ended, by point. For a process of its own.

    Each child finds two new jobs to publish, and one whose owner is gone and whose lease is over.
    """
    faults = Faults(Path(sys.argv[1]))
    install(app, faults)
    _relay_in_child(faults, RECORD, "first")
    ends = {point: _relay_in_child(faults, point, point) for point in dict.fromkeys(faults.recorded("anybody"))}
    print(json.dumps(ends))


def _waits(id: str) -> bool:
    job = guard.store.job(id)
    return job is not None and job.state.value in ("pending", "running")


def _relay_in_child(faults: Faults, at: str, name: str) -> int:
    """The child's exit code; negative: the signal that ended it."""
    for number in range(2):
        work.apply_async((number,), task_id=f"{name}-{number}")
    work.apply_async((2,), task_id=f"{name}-lapsed")
    guard.store.claim(f"{name}-lapsed", "gone", timedelta(microseconds=1))
    child = os.fork()
    if child == 0:
        faults.at = at
        guard.store.forget_connections()
        relay = make_relay(runtime_of(app))
        # The lost job comes back after a delay drawn at random, so one look may not meet every point; and it is looked for after the
        # others have gone, so that it never goes with them: each relay passes the same points.
        for _ in range(200):
            relay.drain()
            relay.sweep()
            if not any(_waits(f"{name}-{end}") for end in ("0", "1", "lapsed")):
                break
            guard.store.wait(timedelta(milliseconds=20))
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


if "APP_TRACE" in os.environ:
    # before the points are put around it: what a process asked is written down before it dies there
    _runtime = runtime_of(app)
    setattr(_runtime, "store", Recorder(_runtime.store, Path(os.environ["APP_TRACE"])))  # noqa: B010

install_from(os.environ, app)
