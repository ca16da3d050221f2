"""Tasks of the RETRY and STAT cases."""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
from typing import Any

from celery import signals
from celery.exceptions import Ignore, Reject, SoftTimeLimitExceeded

from celery_guard import Contract, GuardedTask, Retry, Timing

from .app import app, flag, guard, mark, task

__all__ = ["app", "guard"]


class Hooked(GuardedTask):
    """Leaves a mark for each hook."""

    abstract = True

    def on_dead(self, job_id: str, error: BaseException) -> None:
        job = guard.store.job(job_id)
        history = [failure.type_name.rpartition(".")[2] for failure in job.failures] if job is not None else []
        mark(f"on_dead {type(error).__name__} {error} {history}")

    def on_failure(self, exc: Any, task_id: str, *rest: Any) -> None:
        mark(f"on_failure {type(exc).__name__}")

    def on_retry(self, exc: Any, task_id: str, *rest: Any) -> None:
        mark("on_retry")


@task(base=Hooked, bind=True, autoretry_for=(Exception,), max_retries=3, default_retry_delay=0.05)
def mixed(self: Any, what: str) -> None:
    """Asks for another run with a new argument first, then only fails."""
    mark(f"mixed {what} {self.request.retries}", self)
    if what == "old":
        raise self.retry(args=["new"], countdown=0.05)
    raise ValueError("always")


@task(base=Hooked, bind=True, autoretry_for=(Exception,), max_retries=3, default_retry_delay=0.05)
def control(self: Any, what: str) -> None:
    mark(f"control {what}", self)
    if what == "ignore":
        raise Ignore
    if what == "reject":
        raise Reject("no", requeue=False)
    sys.exit(3)


@task(base=Hooked, bind=True, max_retries=2, default_retry_delay=0.05)
def gives_back(self: Any) -> None:
    mark("gives_back", self)
    raise Reject("not here", requeue=True)


@task(base=Hooked, bind=True)
def asks_for_ever(self: Any, limit: int | None = None) -> None:
    mark("asks", self)
    raise self.retry(countdown=0.05, exc=KeyError("original"), max_retries=limit)


@task(base=Hooked, bind=True, contract=Contract(timing=Timing(soft=0.5, attempt=20)))
def swallows(self: Any) -> str:
    """A body that swallows the soft limit with everything else, and goes on."""
    mark("swallows", self)
    try:
        threading.Event().wait(10)
    except Exception:  # noqa: BLE001 - this is the fault that the case is about
        mark("swallowed", self)
    return "done"


@task(base=Hooked, bind=True, contract=Contract(timing=Timing(soft=0.5, attempt=20)))
def told_softly(self: Any) -> None:
    mark("told_softly", self)
    try:
        threading.Event().wait(10)
    except SoftTimeLimitExceeded:
        mark("soft", self)
        raise


def record(self: Any) -> None:
    request, job = self.request, self.job
    seen = {
        "tenant": job.tenant,
        "key": job.key,
        "deadline": str(job.deadline),
        "correlation": job.correlation_id,
        "custom": (request.headers or {}).get("x-custom"),
        "trace": (request.headers or {}).get("traceparent"),
        "routing_key": request.delivery_info["routing_key"],
        "priority": request.delivery_info["priority"],
        "links": len(request.callbacks or ()),
        "errbacks": len(request.errbacks or ()),
        "args": [list(request.args), request.kwargs],
        "root": request.root_id,
    }
    mark(json.dumps(seen, sort_keys=True), self)


CARRIES = Contract(key="order", retry=Retry(max_attempts=4, base=0.05, cap=0.1))


@task(base=GuardedTask, bind=True, contract=CARRIES)
def carries(self: Any, order: int, tenant: str, how: str) -> str:
    """Fails twice, in the given way, and then succeeds."""
    record(self)
    if not (flag(f"{how}-1") or flag(f"{how}-2")):
        return "carried"
    if how == "policy":
        raise ConnectionError("again")
    if how == "explicit":
        raise self.retry(countdown=0.05)
    os.kill(os.getpid(), signal.SIGKILL)
    return ""


@task(base=GuardedTask, bind=True, contract=Contract(key="order"))
def replayed(self: Any, order: int, tenant: str) -> str:
    record(self)
    if flag("replayed-0") or flag("replayed-1"):
        raise ValueError("dead")
    return "carried"


@task(base=Hooked, bind=True, contract=Contract(retry=Retry(max_attempts=50, base=3600, cap=3600, jitter=False)))
def too_late(self: Any) -> None:
    mark("too_late", self)
    raise ConnectionError("again")


# -- STAT-2 ----------------------------------------------------------------------------------------------------------


class TwoArguments(Exception):
    """Two arguments in, one kept."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(text)
        self.code = code


class Unprintable(Exception):
    """Neither ``str`` nor ``repr`` works."""

    def __str__(self) -> str:
        raise RuntimeError("no str")

    def __repr__(self) -> str:
        raise RuntimeError("no repr")


class HoldsALock(Exception):
    """Cannot be pickled."""

    def __init__(self) -> None:
        super().__init__("holds a lock")
        self.lock = threading.Lock()


def _chained(depth: int) -> Exception:
    error: Exception = ValueError("the root")
    for level in range(depth + 1):
        above = KeyError(level)
        above.__cause__ = error
        error = above
    return error


@task(base=GuardedTask, bind=True)
def awkward(self: Any, kind: str) -> None:
    mark(f"awkward {kind}", self)
    if kind == "two arguments":
        raise TwoArguments(1, "one kept")
    if kind == "unprintable":
        raise Unprintable
    if kind == "lock":
        raise HoldsALock
    if kind == "huge":
        raise RecursionError("x" * 50_000_000)
    if kind == "chained":
        raise _chained(300)
    if kind == "nul":
        raise ValueError("a\x00b\ud800c \N{PILE OF POO}")

    class Local(Exception):
        """Defined in a function."""

    raise Local("local")


# -- STAT-1 ----------------------------------------------------------------------------------------------------------


@task(base=GuardedTask, bind=True)
def stored_then_killed(self: Any) -> str:
    mark("stored_then_killed", self)
    return "stored"


@signals.task_success.connect(sender=stored_then_killed)
def kill_after_success(**_: Any) -> None:
    """Celery has stored SUCCESS; the child dies before anything else."""
    if flag("killed-after-success"):
        os.kill(os.getpid(), signal.SIGKILL)


@task(base=GuardedTask, bind=True)
def backend_out(self: Any) -> str:
    """The result backend is out when this is done, once."""
    mark("backend_out", self)
    backend = self.backend
    store_result = backend.store_result

    def out(*args: Any, **kwargs: Any) -> Any:
        backend.store_result = store_result
        raise ConnectionError("the backend is out")

    if flag("backend-out"):
        backend.store_result = out
    return "done"
