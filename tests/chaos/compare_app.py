"""The same shop five times: plain Celery with early and with late acks, celery-once, celery-singleton, and guarded. ``APP_SYSTEM`` says which.

What a body does is one row in the user's database: ``charge <number>``. The guarded body writes it with its job's transaction, the others with one of
their own. All are told to retry what fails for a while.
"""

from __future__ import annotations

import json
import os
from typing import Any

from celery import Celery, Task, chord
from sqlalchemy import Engine, create_engine, text
from sqlalchemy.pool import NullPool

from celery_guard import Contract, Guard, GuardedTask
from tests.integration.app import mark

__all__ = ["SYSTEMS", "app", "charge", "chord", "guard", "is_guarded", "part", "shop", "tables", "total"]

SYSTEMS = ("Celery, early acks", "Celery, late acks", "celery-once", "celery-singleton", "celery-guard")

SYSTEM = os.environ.get("APP_SYSTEM", SYSTEMS[0])
is_guarded = SYSTEM == "celery-guard"

_BROKER, _BACKEND = os.environ["APP_BROKER"], os.environ.get("APP_BACKEND")
#: What users do to lose less: every system but the first has it.
_LATE = {} if SYSTEMS[0] == SYSTEM else {"acks_late": True, "reject_on_worker_lost": True}

app = Celery("tests.chaos.compare_app", broker=_BROKER, backend=_BACKEND)
app.conf.update(json.loads(os.environ.get("APP_CONF", "{}")))
app.conf.update(
    broker_connection_retry_on_startup=True,
    worker_hijack_root_logger=False,
    singleton_backend_url=_BROKER,
    ONCE={"backend": "celery_once.backends.Redis", "settings": {"url": _BROKER, "default_timeout": 3600}},
)
# what is plain has a guard that it does not know of, so that whoever looks at the store finds one
guard = Guard(app if is_guarded else Celery("aside", broker=_BROKER, set_as_current=False))


def _how(*key: str) -> dict[str, Any]:
    """The options of a task with this key."""
    retried = {"autoretry_for": (ConnectionError,), "retry_backoff": True, "max_retries": 5}
    if is_guarded:
        return {"base": GuardedTask, "contract": Contract(key=key or None), **retried, **_LATE}
    if SYSTEM == "celery-once" and key:
        from celery_once import QueueOnce

        return {"base": QueueOnce, "once": {"keys": [*key], "graceful": True}, **retried, **_LATE}
    if SYSTEM == "celery-singleton" and key:
        from celery_singleton import Singleton

        return {"base": Singleton, "unique_on": [*key], **retried, **_LATE}
    return {"base": Task, **retried, **_LATE}


def _write(self: Any, what: str) -> None:
    """What the body is there for."""
    statement = text("INSERT INTO chaos_booking (job) VALUES (:what)")
    if is_guarded:
        self.job.transaction().execute(statement, {"what": what})
    else:
        with shop().begin() as connection:
            connection.execute(statement, {"what": what})
    mark("return 1")


@app.task(bind=True, shared=False, **_how("number"))
def charge(self: Any, number: int) -> int:
    """One row for each number, whatever happens."""
    _write(self, f"charge {number}")
    return number


@app.task(bind=True, shared=False, **_how())
def part(self: Any, number: int) -> int:
    """A member of a chord."""
    _write(self, f"part {number}")
    return number


@app.task(bind=True, shared=False, **_how())
def total(self: Any, values: list[int], number: int) -> int:
    """The body of a chord."""
    _write(self, f"total {number}")
    return sum(values)


def shop() -> Engine:
    """The user's own connections."""
    return create_engine(guard.settings.store, poolclass=NullPool)


def tables() -> None:
    """Make the user's tables."""
    with shop().begin() as connection:
        connection.execute(text("CREATE TABLE chaos_order (name VARCHAR(100))"))
        connection.execute(text("CREATE TABLE chaos_booking (job VARCHAR(100))"))
