"""The app of the tests for duplicates, crashes, leases and cancels: the tasks of ``app.py``, and some that go wrong.

A few leases here are short, so that a test need not wait long for one to lapse: those of tasks that only die or hang. A
lease that is shorter than a busy machine's pauses would be lost by healthy bodies too.
"""

from __future__ import annotations

import os
import signal
import time
from typing import Any

from celery import Task
from sqlalchemy import text

from celery_guard import Contract, GuardedTask, Retry, Timing

from .app import EFFECTS, FLAGS, add, app, await_flag, chain, charge, flag, guard, mark, note, plain, task, wait_for

__all__ = ["EFFECTS", "FLAGS", "Task", "add", "app", "chain", "charge", "flag", "guard", "note", "plain", "wait_for"]

SHORT = Timing(lease=1)


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
def eats_memory(self: Any, node: bool = False) -> None:
    """A body that uses up all memory: the kernel kills its process, or everything that runs on the machine."""
    mark("eats_memory", self)
    if node:
        os.killpg(os.getpgid(0), signal.SIGKILL)
    os.kill(os.getpid(), signal.SIGKILL)


@task(base=GuardedTask, bind=True, acks_late=True, time_limit=1.5, contract=Contract(timing=Timing(lease=2)))
def killed_once(self: Any, name: str) -> str:
    mark("killed_once", self)
    if flag(name):
        os.kill(os.getpid(), signal.SIGKILL)
    return name


def _hangs(self: Any) -> None:
    mark(self.name.rpartition(".")[2], self)
    time.sleep(60)


def _hangs_in_native_code(self: Any) -> None:
    """Nothing of Python gets to run: neither the pool's signal nor the body's ``finally``."""
    mark("hangs_in_native_code", self)
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
    time.sleep(60)


#: The first third of the lease is over in time, the second is not.
LIMIT = Timing(lease=2, attempt=1, grace=0.5)
overtime = task(base=GuardedTask, bind=True, acks_late=True, contract=Contract(timing=LIMIT), name="overtime")(_hangs)
unacked_overtime = task(
    base=GuardedTask, bind=True, acks_late=True, acks_on_failure_or_timeout=False, contract=Contract(timing=LIMIT),
    name="unacked_overtime",
)(_hangs)  # fmt: skip
overtime_twice = task(
    base=GuardedTask, bind=True, name="overtime_twice",
    contract=Contract(timing=LIMIT, retry=Retry(max_attempts=2, base=0.01, cap=0.01)),
)(_hangs)  # fmt: skip
hangs_in_native_code = task(
    base=GuardedTask, bind=True, contract=Contract(timing=LIMIT), name="hangs_in_native_code"
)(_hangs_in_native_code)  # fmt: skip


@task(acks_late=True)
def late_and_unguarded() -> None:
    """Only here for the check at boot to find."""


# -- leases -------------------------------------------------------------------------------------------------------------

#: How wrong this node's clock is (seconds).
SKEW = float(os.environ.get("APP_SKEW", "0"))
if SKEW:
    _real = time.time
    time.time = lambda: _real() + SKEW


class Hooked(GuardedTask):
    abstract = True

    def before_start(self, task_id: str, args: Any, kwargs: Any) -> None:
        if kwargs.get("how") == "hook":
            raise ValueError("the hook is broken")


@task(
    base=Hooked, bind=True,
    contract=Contract(key="n", match=("n",), retry=Retry(max_crashes=1), timing=Timing(lease=1, attempt=86400)),
)  # fmt: skip
def unique(self: Any, n: int, how: str = "well") -> str:
    """One at a time for each ``n``, a day at the most; ends in the way that is asked for."""
    mark(f"unique {how}", self)
    if how == "sigkill":
        os.kill(os.getpid(), signal.SIGKILL)
    if how == "waits":
        wait_until_told(self, f"unique-{n}")
    return how


@task(base=GuardedTask, bind=True, contract=Contract(key="n", match=("n",), timing=Timing(lease=3600)))
def unique_for_long(self: Any, n: int, how: str = "well") -> str:
    """The same with a lease that no test waits for."""
    mark(f"unique {how}", self)
    if how == "hangs":
        time.sleep(60)
    return how


def wait_until_told(self: Any, name: str) -> None:
    for _ in range(3000):
        if (FLAGS / name).exists():
            return
        self.job.check()
        time.sleep(0.02)


@task(base=GuardedTask, bind=True)
def writes(self: Any) -> int:
    """Waits for its flag without a look at its lease, then writes through the guard, and tells what it thinks of its lease."""
    mark("writes", self)
    fence = self.job.fence
    await_flag(f"write-{fence}")
    mark(f"owned: {self.job.owned()}", self)
    if "G5" not in guard.store.limits:
        self.job.transaction().execute(text("INSERT INTO effects (fence) VALUES (:fence)"), {"fence": fence})
    return int(fence)


@task(base=GuardedTask, bind=True)
def holds(self: Any, name: str) -> str:
    """Reminds somebody, so that its node is a publisher too, then holds its lease until the test raises a flag."""
    mark("holds", self)
    if self.job.attempt == 1:
        remind.delay(1)
    await_flag(name)
    return name
