"""Tasks that replace themselves, share keys, and write through their job's transaction."""

from __future__ import annotations

from typing import Any

from celery import chain, group
from celery.exceptions import Ignore, Retry
from sqlalchemy import text

from celery_guard import Contract, GuardedTask

from .app import add, app, guard, mark, note, plain, task

__all__ = ["app", "chain", "group", "guard"]


@task(base=GuardedTask, bind=True)
def becomes(self: Any, what: str) -> Any:
    mark(f"becomes {what}", self)
    if what == "plain":
        return self.replace(plain.s("plain"))
    if what == "guarded":
        return self.replace(add.s(1, 2))
    if what == "chain":
        return self.replace(add.s(1, 2) | add.s(10))
    return self.replace(group(add.s(1, 1), add.s(2, 2)))


@task(base=GuardedTask, bind=True, contract=Contract(key="order"))
def pay(self: Any, order: int) -> str:
    mark(f"pay {order}", self)
    return f"paid {order}"


@task(base=GuardedTask, bind=True)
def writes(self: Any, how: str) -> Any:
    mark(f"writes {how}", self)
    if how == "with":
        with self.job.transaction() as session:
            session.execute(text("insert into handed_over values (:how)"), {"how": how})
            note.delay(f"from {how}")
        return "done"
    session = self.job.transaction()
    session.execute(text("insert into handed_over values (:how)"), {"how": how})
    if how == "replace":
        return self.replace(note.si("replaced"))
    session.close()
    return "done"


@task(base=GuardedTask, bind=True, max_retries=2, default_retry_delay=0.05)
def asks(self: Any, how: str) -> None:
    mark(f"asks {how}", self)
    if how == "raises":
        raise Retry("again", when=0.05)
    self.retry(throw=False, countdown=0.05)
    raise Ignore
