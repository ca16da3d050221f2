"""Bodies that pools are told apart by: they wait, compute, sleep where no pool can see it, and ask who they are."""

from __future__ import annotations

import ctypes
import os
import time
from typing import Any

from celery_guard import Contract, GuardedTask, Retry, Timing

from .app import FLAGS, add, app, await_flag, chain, fails, flaky, guard, mark, task, wait_for

__all__ = ["add", "app", "chain", "fails", "flaky", "guard", "wait_for"]


def native_sleep(seconds: float) -> None:
    """Sleep as a C library does: no other green thread gets to run."""
    ctypes.CDLL(None).usleep(int(seconds * 1e6))


@task(base=GuardedTask, bind=True)
def waits(self: Any, seconds: float) -> int:
    """Waits as most bodies do, without a look at its job; for longer than its lease."""
    mark("waits", self)
    time.sleep(seconds)
    assert self.job.owned()
    return int(self.job.attempt)


@task(base=GuardedTask, bind=True)
def computes(self: Any, tag: str, native: bool = False) -> str:
    """The first attempt computes, without waiting once, until the second has begun."""
    mark("computes", self)
    if self.job.fence > 1:
        (FLAGS / tag).touch()
        return "second"
    until = time.monotonic() + 60
    while not (FLAGS / tag).exists() and time.monotonic() < until:
        if native:
            native_sleep(0.05)
    mark("computed", self)
    return "first"


@task(base=GuardedTask, bind=True)
def who(self: Any, seconds: float) -> bool:
    """Whether it still is itself after others have had their turn."""
    before = self.job.id, self.job.fence, self.request.id
    time.sleep(seconds)
    mark("who", self)
    return bool(before == (self.job.id, self.job.fence, self.request.id) and before[0] == before[2])


#: A spawned child needs longer than a second before it can begin.
LIMITED = Contract(
    timing=Timing(attempt=float(os.environ.get("APP_LIMIT", "1")), grace=0.5, lease=1), retry=Retry(max_attempts=1)
)


@task(base=GuardedTask, bind=True, contract=LIMITED)
def overtime(self: Any, name: str) -> None:
    """Longer than it may, waiting."""
    mark("overtime", self)
    await_flag(name)
    mark("overtime done", self)


@task(base=GuardedTask, bind=True, contract=Contract(timing=Timing(soft=0.5, attempt=20)))
def asks(self: Any, name: str) -> str:
    mark("asks", self)
    await_flag(name)
    return name


@task(base=GuardedTask, bind=True)
def holds(self: Any, name: str) -> str:
    """Runs until the test raises a flag."""
    mark("holds", self)
    await_flag(name)
    mark("held", self)
    return name
