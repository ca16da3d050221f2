"""The app with a task whose arguments, result and failures say what must not be read on the way."""

from __future__ import annotations

import logging
from typing import Any

from celery_guard import Contract, GuardedTask, Retry

from .app import FLAGS, app, await_flag, guard, mark, task

__all__ = ["app", "guard", "pays"]


@task(
    base=GuardedTask, bind=True, contract=Contract(key="order", sensitive=("card",), retry=Retry(max_attempts=2, base=0.05, cap=0.1))
)  # fmt: skip
def pays(self: Any, order: str, card: str, attempt: int = 1) -> Any:
    mark(order, self)
    logging.getLogger("shop").debug("%s: charging %s", order, card)
    if order == "waits":
        await_flag("go on")
    if order == "changes" and attempt == 1:
        raise self.retry(args=(order, card, 2), kwargs={}, countdown=0.05)
    if order == "fails" and not (FLAGS / "gateway is back").exists():
        raise ConnectionError(f"the gateway does not answer for {card}")
    return {"receipt for": card}
