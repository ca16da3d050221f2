"""The app, with bodies that log."""

from __future__ import annotations

import logging
from typing import Any

from celery_guard import Contract, GuardedTask, Retry

from .app import app, guard, mark, task

__all__ = ["app", "guard", "speaks"]


@task(base=GuardedTask, bind=True, contract=Contract(key="order", retry=Retry(max_attempts=3, base=0.05, cap=0.1)))
def speaks(self: Any, order: str, tenant: str, failures: int = 0) -> None:
    mark("speaks", self)
    logging.getLogger("shop").warning("in the body")
    if self.job.attempt <= failures:
        raise ConnectionError("not yet")
