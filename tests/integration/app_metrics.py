"""The app of the tests for metrics: jobs that succeed, fail, are tried again, and kill the process that runs them."""

from __future__ import annotations

import os
import signal
from typing import Any

from celery_guard import Contract, GuardedTask, Retry, Timing

from .app import app, flag, guard, mark, task

__all__ = ["app", "guard", "pay"]


@task(
    base=GuardedTask, bind=True, acks_late=True, reject_on_worker_lost=True,
    contract=Contract(
        owner="payments", key="n", match=("n",), timing=Timing(lease=1),
        retry=Retry(max_attempts=3, max_crashes=20, base=0.05, cap=0.05),
    ),
)  # fmt: skip
def pay(self: Any, n: int, how: str = "well") -> int:
    """Ends in the way that is asked for: well, wrong, wrong once, or with its process, once."""
    mark(f"pay {how}", self)
    if how == "wrong":
        raise ValueError(f"order {n} is wrong")
    # by what the store has counted: on a busy machine the first attempt may lose its lease of a second, and is not heard
    if how == "later" and self.job.retries == 0:
        raise ConnectionError(f"order {n} has to wait")
    if how == "kill" and flag(f"killed-{n}"):
        os.kill(os.getpid(), signal.SIGKILL)
    return n
