"""The app of a fleet that is being upgraded. It runs on the last release too, so it says nothing that is newer than that.

Bodies leave marks in a file: what, and which code ran it.
"""

from __future__ import annotations

import json
import os
import time
from functools import partial
from pathlib import Path
from typing import Any

from celery import Celery, chain
from sqlalchemy import text

import celery_guard
from celery_guard import Contract, Guard, GuardedTask, Retry

CODE = os.environ["UPGRADE_CODE"]
EFFECTS = Path(os.environ["UPGRADE_EFFECTS"])
FLAGS = Path(os.environ["UPGRADE_FLAGS"])

# a test of two versions that runs one of them twice would show nothing
assert Path(celery_guard.__file__).is_relative_to(os.environ["UPGRADE_FROM"]), celery_guard.__file__

app = Celery("upgraded_shop", broker=os.environ["APP_BROKER"], backend=os.environ["APP_BACKEND"])
app.conf.update(json.loads(os.environ["APP_CONF"]))
app.conf.update(broker_connection_retry_on_startup=True, worker_hijack_root_logger=False)
guard = Guard(app)
task = partial(app.task, shared=False, base=GuardedTask, bind=True)


def mark(what: str) -> None:
    descriptor = os.open(EFFECTS, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    try:
        os.write(descriptor, json.dumps([what, CODE]).encode() + b"\n")
    finally:
        os.close(descriptor)


def raised(flag: str) -> bool:
    return (FLAGS / flag).exists()


@task()
def once(self: Any, what: str) -> str:
    """One mark an outcome."""
    mark(f"once {what}")
    return what


@task()
def hold(self: Any, what: str) -> str:
    """At work until the test lets it go."""
    mark(f"held {what}")
    until = time.monotonic() + 500
    while not raised("go"):
        self.job.check()
        if time.monotonic() > until:
            raise TimeoutError("nobody let it go")
        time.sleep(0.05)
    mark(f"let go {what}")
    return what


@task(contract=Contract(retry=Retry(max_attempts=400, base=1, cap=2)))
def again(self: Any, what: str) -> str:
    """Fails, and is retried, until the outage is over."""
    if not raised("healed"):
        raise ConnectionError("not yet")
    mark(f"again {what}")
    return what


@task()
def dies(self: Any, what: str) -> str:
    """A dead letter, until it is sent again after the repair."""
    if not raised("mended"):
        raise ValueError("a bug")
    mark(f"mended {what}")
    return what


@task(contract=Contract(key="order"))
def charge(self: Any, order: str) -> str:
    """A key, and an effect that commits with the job; a mark where the store joins no transaction."""
    if os.environ["CELERY_GUARD_STORE"].startswith("redis"):
        mark(f"charged {order}")
        return order
    self.job.transaction().execute(text("INSERT INTO shop_charge VALUES (:order_)"), {"order_": order})
    return order


def send(batch: str) -> list[str]:
    """One job of each kind, and more of the plain one; the ids."""
    sent = [once.delay(f"{batch}{n}") for n in range(5)]
    sent += [
        once.apply_async((f"{batch} later",), countdown=2),
        again.delay(batch),
        dies.delay(batch),
        charge.delay(batch),
    ]
    sent.append(chain(once.si(f"{batch} first"), once.si(f"{batch} next")).delay())
    return [result.id for result in sent]
