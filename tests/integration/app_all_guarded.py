"""An app whose every task is guarded, Celery's own included, by ``task_cls``."""

from __future__ import annotations

import os
import signal
from typing import Any

from celery import Celery, chord

from celery_guard import Guard

from .app import app as base
from .app import flag, mark

app = Celery(
    "tests.integration.app_all_guarded",
    broker=os.environ["APP_BROKER"],
    backend=os.environ.get("APP_BACKEND"),
    task_cls="celery_guard.integrations.celery.task:GuardedTask",
)
app.conf.update(base.conf.changes)
guard = Guard(app)

__all__ = ["app", "chord", "guard"]


@app.task(bind=True, shared=False)
def part(self: Any, n: int) -> int:
    mark(f"part {n}", self)
    if n == 1 and flag("part-died"):
        os.kill(os.getpid(), signal.SIGKILL)
    return n


@app.task(bind=True, shared=False)
def whole(self: Any, values: list[int]) -> int:
    mark(f"whole {values}", self)
    return sum(values)
