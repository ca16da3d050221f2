"""An app that was never written for the guard. With ``APP_GUARDED`` two lines are added to it, and nothing else."""

from __future__ import annotations

import json
import os
import signal
import time
from functools import partial
from pathlib import Path
from typing import Any

from celery import Celery, chain, chord, group

__all__ = ["app", "chain", "chord", "group"]

EFFECTS = Path(os.environ["APP_EFFECTS"])
FLAGS = Path(os.environ["APP_FLAGS"])

app = Celery("tests.integration.app_adoption", broker=os.environ["APP_BROKER"], backend=os.environ.get("APP_BACKEND"))
app.conf.update(json.loads(os.environ.get("APP_CONF", "{}")))
app.conf.update(broker_connection_retry_on_startup=True, worker_hijack_root_logger=False)
task = partial(app.task, shared=False)

if os.environ.get("APP_GUARDED"):
    from celery_guard import Contract, Guard

    names = os.environ.get("APP_CONTRACTS", "shop.*").split()
    guard = Guard(app, contracts={name: Contract() for name in names})


def who(task: Any) -> str:
    """Who runs this body."""
    try:
        return "guard" if task.job else ""
    except (AttributeError, RuntimeError):
        return "plain"


def mark(what: str, task: Any) -> None:
    descriptor = os.open(EFFECTS, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    line = [what, task.request.id, task.request.retries, who(task)]
    try:
        os.write(descriptor, json.dumps(line).encode() + b"\n")
    finally:
        os.close(descriptor)


@task(bind=True, name="shop.add")
def add(self: Any, x: int, y: int) -> int:
    mark(f"add {x} {y}", self)
    return x + y


@task(bind=True, name="shop.total")
def total(self: Any, values: list[int]) -> int:
    mark(f"total {sorted(values)}", self)
    return sum(values)


@task(bind=True, name="shop.again", max_retries=3)
def again(self: Any, times: int) -> int:
    mark(f"again {times}", self)
    if self.request.retries < times:
        raise self.retry(countdown=0.1)
    return times


@task(bind=True, name="shop.flaky", autoretry_for=(ConnectionError,), default_retry_delay=0.1)
def flaky(self: Any) -> str:
    mark("flaky", self)
    if self.request.retries < 1:
        raise ConnectionError("once")
    return "in the end"


@task(bind=True, name="shop.wait")
def wait(self: Any, name: str) -> str:
    mark(f"wait {name}", self)
    until = time.monotonic() + 60
    while not (FLAGS / name).exists() and time.monotonic() < until:
        time.sleep(0.01)
    return name


@task(bind=True, name="shop.die")
def die(self: Any) -> None:
    mark("die", self)
    os.kill(os.getpid(), signal.SIGKILL)
