"""The steps of a job's journey at which :mod:`.faults` may strike, put into a process that is made to die.

The store, the runner, the keeper of leases, the publisher, the result backend and the database driver each get a stand-in or a wrapper that
says when a step begins and ends. A process that has them cannot be told to lose them again: never install in one that goes on.
"""

from __future__ import annotations

import functools
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

from celery import Celery
from celery.app import backends
from kombu import Producer

from celery_guard.flow.lease import LeaseKeeper
from celery_guard.integrations.celery.publisher import BrokerPublisher
from celery_guard.integrations.celery.runtime import Runtime, runtime_of

from .driver import watched
from .faults import Faults, die, stay

__all__ = ["install", "install_from"]

#: How long a process waits for its other thread to die of what both have reached, in seconds.
_PATIENCE = 30.0


def install_from(environ: Mapping[str, str], app: Celery) -> None:
    """Install in this process if its environment asks for it, and change nothing otherwise.

    ``GUARD_TEST_FAULTS`` names the folder, ``GUARD_TEST_FAULT`` what happens at a point: ``die`` (the default) or ``stay``.
    """
    folder = environ.get("GUARD_TEST_FAULTS")
    if folder:
        acts = {"die": die, "stay": stay}
        install(app, Faults(Path(folder), acts[environ.get("GUARD_TEST_FAULT", "die")]))


def install(app: Celery, faults: Faults) -> None:
    """Put points into everything that a job passes in this process and its children. Call it when the app is configured."""
    runtime = runtime_of(app)
    _watch_driver(runtime.settings.store, faults)
    # connections that are open already would say nothing
    runtime.store.close()
    _put(runtime, "store", _Store(runtime.store, faults))
    _put(runtime, "keeper", _Keeper(runtime, faults))
    _put(runtime, "runner", _Runner(runtime.runner, faults))
    _around(BrokerPublisher, "publish", lambda it, rows: faults.step("publish", [row.id for row in rows]))
    _around(Producer, "publish", lambda *a, **k: faults.write("publish"))
    backend, _ = backends.by_url(app.backend_cls or app.conf.result_backend, app.loader)
    _around(backend, "mark_as_done", lambda it, id, *a, **k: faults.step("tell", [id]))
    _around(backend, "mark_as_failure", lambda it, id, *a, **k: faults.step("tell", [id]))
    _around(backend, "store_result", lambda it, id, *a, **k: faults.step("result", [id]))
    _around(backend, "on_chord_part_return", lambda it, request, *a, **k: faults.step("part", [request.id]))


def _put(owner: Any, name: str, value: Any) -> None:
    setattr(owner, name, value)


def _around(owner: Any, name: str, entered: Callable[..., Any]) -> None:
    plain = getattr(owner, name)

    @functools.wraps(plain)
    def stepped(*args: Any, **kwargs: Any) -> Any:
        with entered(*args, **kwargs):
            return plain(*args, **kwargs)

    _put(owner, name, stepped)


def _watch_driver(url: str, faults: Faults) -> None:
    scheme = url.partition("://")[0]
    if scheme == "redis":
        # one script is one write
        _around(import_module("celery_guard.store.redis.server").Server, "_call", lambda *a: faults.write())
        return
    names = {"sqlite": "sqlite3.dbapi2", "postgresql+psycopg": "psycopg", "mysql+pymysql": "pymysql"}
    driver = import_module(names[scheme])
    _put(driver, "connect", watched(driver.connect, faults.write))


class _Through:
    """Everything that is not said otherwise goes through to what is inside."""

    def __init__(self, inner: Any, faults: Faults) -> None:
        self._inner = inner
        self._faults = faults

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)


class _Store(_Through):
    def claim(self, id: str, *more: Any) -> Any:
        with self._faults.step("claim", [id]):
            return self._inner.claim(id, *more)

    def settle(self, settlement: Any) -> Any:
        with self._faults.step("settle", [settlement.id]):
            return self._inner.settle(settlement)

    def begin(self) -> Any:
        return _Transaction(self._inner.begin(), self._faults)

    def told(self, jobs: Iterable[tuple[str, int]]) -> None:
        jobs = list(jobs)
        with self._faults.step("told", [id for id, _ in jobs]):
            self._inner.told(jobs)

    def take(self, *given: Any) -> Any:
        with self._faults.step("take") as taken:
            rows = self._inner.take(*given)
            taken([row.id for row in rows])
        return rows

    def sent(self, token: str, ids: Any, *more: Any) -> Any:
        with self._faults.step("sent", ids):
            return self._inner.sent(token, ids, *more)

    def recover(self, attempt: Any, settlement: Any) -> Any:
        with self._faults.step("recover", [attempt.id]):
            return self._inner.recover(attempt, settlement)


class _Transaction(_Through):
    def commit(self, settlement: Any) -> Any:
        with self._faults.step("commit", [settlement.id]):
            return self._inner.commit(settlement)


class _Runner(_Through):
    def run(self, delivery: Any, body: Any) -> Any:
        return self._inner.run(delivery, _Body(body, self._faults))


class _Body(_Through):
    def run(self, job: Any) -> Any:
        with self._faults.step("body", [job.id]):
            return self._inner.run(job)


class _Keeper(LeaseKeeper):
    """Notes at once what a job that dies in ``told`` has told, before its process turns to another: nobody else's body dies with it."""

    def __init__(self, runtime: Runtime, faults: Faults) -> None:
        super().__init__(runtime.store)
        self._faults = faults

    def told(self, id: str, fence: int) -> None:
        aimed = self._faults.aims(id, "told")
        super().told(id, fence)
        if not aimed:
            return
        self.flush()
        until = time.monotonic() + _PATIENCE
        while self._faults.aims(id, "told") and time.monotonic() < until:
            # the keeper's own thread was faster, and is on its way to the point
            threading.Event().wait(0.002)
