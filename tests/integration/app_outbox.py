"""The app of the tests for the outbox, the relay, connections and databases: the tasks of ``app.py``, and faults at chosen points.

What goes wrong in which process is said by its environment, so that two relays of one app can meet different fates.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Sequence
from typing import Any

from sqlalchemy import Engine, create_engine, event, text
from sqlalchemy.exc import DBAPIError
from sqlalchemy.orm import Session
from sqlalchemy.pool import NullPool, Pool

from celery_guard import GuardedTask

from .app import FLAGS, add, app, await_flag, chain, flag, group, guard, mark, note, plain, task, wait_for

__all__ = ["FLAGS", "add", "app", "await_flag", "chain", "group", "guard", "note", "plain", "wait_for"]

#: What happens to a relay of this process between "the broker has taken them" and "they are marked as published".
BEFORE_MARK = os.environ.get("APP_BEFORE_MARK", "")


def shop() -> Engine:
    """The user's own connections to the database that the store is in."""
    return create_engine(guard.settings.store, poolclass=NullPool)


# -- the relay --------------------------------------------------------------------------------------------------------


def _before_mark(plain_sent: Callable[..., int]) -> Callable[..., int]:
    def sent(token: str, ids: Sequence[str], *rest: Any) -> int:
        mark(f"published {os.getpid()} {len(ids)}")
        if BEFORE_MARK == "die" and flag("died"):
            os.kill(os.getpid(), signal.SIGKILL)
        if BEFORE_MARK == "stop" and flag("stopped"):
            os.kill(os.getpid(), signal.SIGSTOP)
        if BEFORE_MARK == "wait":
            await_flag("mark")
        marked = plain_sent(token, ids, *rest)
        mark(f"marked {os.getpid()} {marked}")
        return marked

    return sent


if BEFORE_MARK:
    vars(guard.store)["sent"] = _before_mark(guard.store.sent)


# -- the outbox -------------------------------------------------------------------------------------------------------


@task(base=GuardedTask, bind=True)
def look_up(self: Any, order: int) -> bool:
    """Whether the order is there by the time its job runs."""
    with shop().connect() as connection:
        found = connection.scalar(text("SELECT id FROM shop_order WHERE id = :id"), {"id": order}) is not None
    mark(f"order {order} {'found' if found else 'missing'}", self)
    return found
