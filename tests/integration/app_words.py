"""Tasks that use what Celery's own test suite shows bodies to rely on."""

from __future__ import annotations

from typing import Any

from celery.exceptions import Reject

from celery_guard import GuardedTask

from .app import app, guard, mark, note, task

__all__ = ["app", "guard", "note"]


@task(base=GuardedTask, bind=True)
def gives_back_once(self: Any) -> list[Any]:
    mark("gives back", self)
    if not self.request.delivery_info.get("redelivered"):
        raise Reject("not here", requeue=True)
    return [self.request.retries, self.job.attempt]


@task(base=GuardedTask, bind=True)
def tells_its_eta(self: Any) -> Any:
    return self.request.eta


@task(base=GuardedTask, bind=True)
def refuses(self: Any) -> None:
    mark("refuses", self)
    raise Reject("not wanted", requeue=False)
