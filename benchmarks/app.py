"""The app of the benchmarks, plain or guarded, as the environment says; its jobs do nothing but be counted, and wait or ask where they are told to."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

from billiard.process import current_process
from celery import Celery, Task
from celery.signals import worker_process_init

from celery_guard import Guard, GuardedTask

from .bare import asking
from .tally import Tally

GUARDED = os.environ["BENCH_KIND"] == "guarded"
#: How long each body waits, in seconds.
WAIT = float(os.environ.get("BENCH_WAIT", 0))
#: Where each body writes twice, and does nothing else.
ASKS = os.environ.get("BENCH_ASKS", "")
tally = Tally(Path(os.environ["BENCH_TALLY"]))

app = Celery("benchmarks.app", broker=os.environ["BENCH_BROKER"])
app.conf.update(
    task_default_queue=os.environ["BENCH_QUEUE"], task_ignore_result=True, worker_hijack_root_logger=False,
    broker_connection_retry_on_startup=True, **json.loads(os.environ.get("BENCH_CONF", "{}")),
)  # fmt: skip
guard = Guard(app) if GUARDED else None
kind = GuardedTask if GUARDED else Task


@worker_process_init.connect
def place_of_process(**_: Any) -> None:
    """Count in a place of this child's own."""
    tally.process = 1 + getattr(current_process(), "index", 0)


@cache
def ask() -> Callable[[], None]:
    """How this process asks."""
    return asking(ASKS)


@app.task(base=kind)
def nothing(number: int) -> None:
    """The job of most figures."""
    if ASKS:
        ask()()
        ask()()
    if WAIT:
        time.sleep(WAIT)
    tally.count()


@app.task(base=kind)
def begin(number: int) -> None:
    """Says when it began."""
    tally.began(number)
    tally.count()
