"""Tasks that use what Celery's own test suite shows bodies to rely on."""

from __future__ import annotations

import os
import signal
from typing import Any

from celery.exceptions import Reject

from celery_guard import GuardedTask

from .app import app, flag, guard, mark, note, task

__all__ = ["app", "guard", "note"]


@task(base=GuardedTask, bind=True)
def gives_back_once(self: Any) -> list[Any]:
    mark("gives back", self)
    if not self.request.delivery_info.get("redelivered"):
        raise Reject("not here", requeue=True)
    return [self.request.retries, self.job.attempt]


@task(base=GuardedTask, bind=True)
def goes_on_by_place(self: Any, a: int, b: int, label: str = "") -> list[Any]:
    """Was called by name, and retries itself by place."""
    if not self.request.retries:
        raise self.retry(args=(a + 1, b + 1), countdown=0)
    return [a, b, label]


@task(base=GuardedTask)
def squares(n: int) -> int:
    """Of a list of items the third kills its process, once."""
    mark(f"squares {n}")
    if n == 3 and flag("squares-3"):
        os.kill(os.getpid(), signal.SIGKILL)
    return n * n


@task(base=GuardedTask, bind=True)
def tells_its_eta(self: Any) -> Any:
    return self.request.eta


@task(base=GuardedTask, bind=True)
def refuses(self: Any) -> None:
    mark("refuses", self)
    raise Reject("not wanted", requeue=False)
