"""The app with a task whose arguments nobody may read, and a body that does its best to tell them."""

from __future__ import annotations

import logging
import os
import signal
from typing import Any

from celery_guard import Contract, GuardedTask, Retry

from .app import app, await_flag, flag, guard, mark, task

__all__ = ["app", "guard", "pays"]


@task(
    base=GuardedTask, bind=True,
    contract=Contract(key="card", sensitive=("card", "customer.email"), retry=Retry(max_attempts=3, base=0.05, cap=0.1)),
)  # fmt: skip
def pays(self: Any, how: str, card: str, customer: Any = None) -> Any:
    mark(how, self)
    logging.getLogger("shop").warning("%s: charging %s", how, card)
    logging.getLogger("shop").debug("for %(email)s", customer)
    if how == "waits":
        await_flag("go on")
    if how == "dies" and flag("died"):
        os.kill(os.getpid(), signal.SIGKILL)
    if how == "asks":
        raise self.retry(exc=ValueError(f"{card} asks"), countdown=0.05)
    if how == "fails":
        try:
            raise KeyError(customer["email"])
        except KeyError as error:
            raise ValueError(f"bad card {card!r}") from error
    if how == "breaks":
        raise ConnectionError(card, customer)
    return {"card": card, "how": how}
