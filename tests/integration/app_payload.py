"""Tasks of the PAY cases. ``APP_KNOWS`` says which of them this worker knows: a rolling deploy has workers that differ."""

from __future__ import annotations

import os
from typing import Any

from celery_guard import GuardedTask

from .app import app, guard, mark, task

__all__ = ["app", "guard"]

_KNOWS = os.environ.get("APP_KNOWS", "bill").split(",")

if "bill" in _KNOWS:

    @task(base=GuardedTask, bind=True, name="billing.charge")
    def bill(self: Any, amount: int) -> int:
        mark(f"bill {amount}", self)
        return amount
