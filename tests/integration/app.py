"""The app that integration tests run workers of. Everything it needs comes from the environment.

Bodies leave marks in a file: one line an entry into a body, appended in one write, so that what ran can be counted
after any process has died.
"""

from __future__ import annotations

import json
import os
import signal
import time
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

from celery import Celery, Task, chain, group

from celery_guard import Contract, Guard, GuardedTask, Retry, Timing

EFFECTS = Path(os.environ.get("APP_EFFECTS", os.devnull))
FLAGS = Path(os.environ.get("APP_FLAGS", "/nonexistent"))

app = Celery("tests.integration.app", broker=os.environ["APP_BROKER"], backend=os.environ.get("APP_BACKEND"))
app.conf.update(json.loads(os.environ.get("APP_CONF", "{}")))
app.conf.update(broker_connection_retry_on_startup=True, worker_hijack_root_logger=False)
guard = Guard(app, **json.loads(os.environ.get("APP_GUARD", "{}")))
# not shared: each test imports this module anew, for an app of its own
task = partial(app.task, shared=False)


def mark(what: str, task: Any = None) -> None:
    """Leave a mark: what, the job's id, its attempt and fence."""
    job = task.job if task is not None else None
    line = [what, None, None, None] if job is None else [what, job.id, job.attempt, job.fence]
    descriptor = os.open(EFFECTS, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    try:
        os.write(descriptor, json.dumps(line).encode() + b"\n")
    finally:
        os.close(descriptor)


def flag(name: str) -> bool:
    """True for the first caller of a test only; whoever dies afterwards."""
    try:
        os.close(os.open(FLAGS / name, os.O_CREAT | os.O_EXCL))
    except FileExistsError:
        return False
    return True


def await_flag(name: str, seconds: float = 60) -> None:
    """Block until a test raises the flag."""
    until = time.monotonic() + seconds
    while not (FLAGS / name).exists():
        if time.monotonic() > until:
            raise TimeoutError(f"nobody raised {name}")
        time.sleep(0.01)


@task(base=GuardedTask, bind=True)
def add(self: Any, x: Any, y: Any) -> Any:
    mark("add", self)
    return x + y


@task(base=GuardedTask, bind=True)
def note(self: Any, what: Any) -> Any:
    mark(f"note {what}", self)
    return what


@task(base=GuardedTask, bind=True)
def total(self: Any, values: list[Any]) -> Any:
    mark("total", self)
    return sum(values)


@task(base=GuardedTask, bind=True)
def fails(self: Any, what: str = "no") -> None:
    mark("fails", self)
    raise ValueError(what)


@task(base=GuardedTask, bind=True, contract=Contract(retry=Retry(max_attempts=4, base=0.05, cap=0.2)))
def flaky(self: Any, failures: int) -> str:
    mark("flaky", self)
    if self.job.attempt <= failures:
        raise ConnectionError("not yet")
    return f"after {self.job.attempt}"


@task(base=GuardedTask, bind=True)
def die_once(self: Any, tag: str) -> str:
    mark("die_once", self)
    if flag(f"died-{tag}"):
        os.kill(os.getpid(), signal.SIGKILL)
    return tag


@task(base=GuardedTask, bind=True)
def die_always(self: Any) -> None:
    mark("die_always", self)
    os.kill(os.getpid(), signal.SIGKILL)


@task(base=GuardedTask, bind=True)
def wait_for(self: Any, name: str) -> str:
    """Runs until the test raises a flag; stops at once when it is told to."""
    mark("wait_for", self)
    until = time.monotonic() + 60
    while not (FLAGS / name).exists():
        self.job.check()
        if time.monotonic() > until:
            raise TimeoutError(name)
        time.sleep(0.02)
    mark("wait_for done", self)
    return name


@task(base=GuardedTask, bind=True)
def poll(self: Any, name: str) -> None:
    """Runs until the test raises a flag, and does not ask whether it should."""
    mark("poll", self)
    await_flag(name)
    mark("poll done", self)


@task(base=GuardedTask, bind=True, contract=Contract(key="order", owner="payments"))
def charge(self: Any, order: int, amount: int = 1) -> str:
    mark(f"charge {order}", self)
    return f"charged {order}"


@task(base=GuardedTask, bind=True, contract=Contract(timing=Timing(attempt=1, grace=0.5)))
def hangs(self: Any) -> None:
    mark("hangs", self)
    time.sleep(60)


@task(base=GuardedTask, bind=True)
def tick(self: Any) -> None:
    """What a schedule sends: it knows which of its slots it is."""
    mark(f"tick {self.request.headers['guard_slot']}", self)


@task()
def plain(what: str) -> str:
    mark(f"plain {what}")
    return what


__all__ = ["Task", "chain", "group", "timedelta"]
