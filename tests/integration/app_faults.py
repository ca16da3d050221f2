"""The app of the tests for duplicates, crashes, leases and cancels: the tasks of ``app.py``, and some that go wrong.

Leases here are short, so that a test need not wait long for one to lapse. They are so for tasks only that die, hang or
are watched; a lease that is shorter than a busy machine's pauses would be lost by healthy bodies.
"""

from __future__ import annotations

import os
import signal
import time
from typing import Any

from celery_guard import Contract, GuardedTask, Retry, Timing

from .app import FLAGS, add, app, await_flag, charge, flag, guard, mark, note, task, wait_for

__all__ = ["FLAGS", "add", "app", "await_flag", "charge", "flag", "guard", "mark", "note", "task", "wait_for"]

SHORT = Timing(lease=0.5)


# -- duplicates ---------------------------------------------------------------------------------------------------------


@task(base=GuardedTask, bind=True)
def remind(self: Any, user: int) -> str:
    mark(f"remind {user}", self)
    return f"reminded {user}"


@task(base=GuardedTask, bind=True, acks_late=True)
def long_steps(self: Any, name: str) -> int:
    """Works in steps, a mark for each, until the test raises a flag."""
    for step in range(3000):
        mark("step", self)
        if (FLAGS / name).exists():
            return step
        time.sleep(0.02)
    raise TimeoutError(name)


@task(base=GuardedTask, bind=True, contract=Contract(key=("name", "n")))
def sync(self: Any, name: Any, n: Any = 2) -> str:
    mark(f"sync {self.job.key}", self)
    return f"synced {name!r} {n!r}"


# -- crashes ------------------------------------------------------------------------------------------------------------


@task(base=GuardedTask, bind=True, acks_late=True, reject_on_worker_lost=True, contract=Contract(timing=SHORT))
def eats_memory(self: Any, node: bool) -> None:
    """What a body does that uses up all memory: the kernel kills its process, or everything on the machine."""
    mark("eats_memory", self)
    if node:
        os.killpg(os.getpgid(0), signal.SIGKILL)
    os.kill(os.getpid(), signal.SIGKILL)


@task(base=GuardedTask, bind=True, acks_late=True, contract=Contract(timing=SHORT))
def killed_once(self: Any, name: str) -> str:
    mark("killed_once", self)
    if flag(name):
        os.kill(os.getpid(), signal.SIGKILL)
    return name


def _overtime(self: Any) -> None:
    mark("overtime", self)
    time.sleep(10)


@task(base=GuardedTask, bind=True, acks_late=True, time_limit=1, contract=Contract(timing=Timing(lease=0.5, grace=0.5)))
def overtime(self: Any) -> None:
    mark("overtime", self)
    time.sleep(10)


@task()
def plain_late() -> None:
    """Only here for the check at boot to find it."""


plain_late.acks_late = True
