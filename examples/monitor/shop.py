"""The shop: orders that are charged and shipped, of which some go wrong."""

from __future__ import annotations

import os
import random
import signal
import time
from pathlib import Path
from typing import Any

from celery import Celery

from celery_guard import Contract, Guard, GuardedTask, Retry

FOLDER = Path(os.environ.get("SHOP_FOLDER", "."))
#: Somebody has put the addresses right.
MENDED = FOLDER / "mended"

app = Celery("shop", broker=f"files://localhost/{FOLDER / 'queue'}")
app.conf.update(
    task_ignore_result=True,
    worker_prefetch_multiplier=1,
    beat_schedule={"restock": {"task": "examples.monitor.shop.restock", "schedule": 5.0}},
)
guard = Guard(
    app, store=f"sqlite:///{FOLDER / 'guard.db'}", lease="2s", sweep_every="1s", crash_base="200ms", crash_cap="1s"
)


class WrongOrder(Exception):
    """It will not become right by trying again."""


@app.task(
    base=GuardedTask,
    bind=True,
    acks_late=True,
    contract=Contract(owner="payments", key="order", retry=Retry(max_attempts=4, base=0.5, cap=2, never=(WrongOrder,))),
)
def charge(self: Any, order: int, amount: int) -> None:
    """Takes a moment; the bank is away now and then, and one order in thirty kills its process once."""
    time.sleep(random.uniform(0.02, 0.25))
    if order % 17 == 0:
        raise WrongOrder(f"order {order} has no amount")
    if order % 30 == 7 and self.job.attempt == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    if random.random() < 0.12:
        raise ConnectionError("the bank is away")


@app.task(base=GuardedTask, acks_late=True, contract=Contract(owner="shipping", key="order"))
def ship(order: int) -> None:
    """Slower."""
    time.sleep(random.uniform(0.1, 0.6))
    if order % 13 == 0 and not MENDED.exists():
        raise ValueError(f"order {order} has no address")


@app.task(base=GuardedTask, contract=Contract(owner="shipping"))
def restock() -> None:
    """Each five seconds, by the schedule of the same name."""
    time.sleep(0.05)
