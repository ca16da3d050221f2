"""Metrics of an app's store, served beside a worker: in a process of its own where that works, else in a thread.

The address is bound by the worker, before anything runs: one that cannot be bound ends the worker at its start.
"""

from __future__ import annotations

import logging
import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Collection
from datetime import datetime
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, Any

from celery import Celery, bootsteps
from celery.beat import ScheduleEntry

from celery_guard.errors import ConfigurationError, GuardError, SettingError
from celery_guard.job.slot import schedule_name

from .beat import expected_since
from .refusal import refusal
from .runtime import Runtime, runtime_of

if TYPE_CHECKING:
    from celery_guard.watch.metrics import Whose

__all__ = ["MetricsStep", "make_registry", "need_client", "whose_of"]

logger = logging.getLogger("celery_guard.watch")


def whose_of(runtime: Runtime) -> Whose:
    """What the app knows about its tasks. Raises ``ConfigurationError`` where ``prometheus-client`` is not installed."""
    need_client()
    from celery_guard.watch.metrics import Whose

    app = runtime.app
    own = (name for name in sorted(app.tasks) if not name.startswith(("celery.", "celery_guard.")))
    guarded = tuple(name for name in own if runtime.contract_of(app.tasks[name]) is not None)
    return Whose(runtime.knows, lambda task: runtime.contract_named(task).owner, guarded, _schedules(app, guarded))


def _schedules(app: Celery, guarded: Collection[str]) -> dict[str, Callable[[], datetime | None]]:
    """Since when each schedule must have run. Those of tasks without a guard leave nothing in the store."""
    entries = (ScheduleEntry(app=app, name=name, **entry) for name, entry in (app.conf.beat_schedule or {}).items())
    return {
        schedule_name(entry.name): partial(expected_since, entry.schedule) for entry in entries if entry.task in guarded
    }


def make_registry(runtime: Runtime) -> Any:
    """The metrics of the app's store. Raises ``ConfigurationError`` where ``prometheus-client`` is not installed."""
    whose = whose_of(runtime)
    from celery_guard.watch.metrics import registry_of

    return registry_of(runtime.store, whose)


def need_client() -> None:
    """Raise ``ConfigurationError`` where ``prometheus-client`` is not installed."""
    try:
        import_module("prometheus_client")
    except ImportError as error:
        raise ConfigurationError(
            "Metrics need prometheus-client, which is not installed. To repair: pip install 'celery-guard[prometheus]'."
        ) from error


class MetricsStep(bootsteps.StartStopStep):  # type: ignore[misc]
    """Serves metrics for as long as the worker runs, where the setting ``metrics`` says so."""

    def __init__(self, worker: Any, **kwargs: Any) -> None:
        super().__init__(worker, **kwargs)
        self._server: Any = None
        self._process: Any = None

    def include_if(self, worker: Any) -> bool:
        runtime = runtime_of(worker.app)
        return runtime.meant and runtime.settings.metrics is not None

    def create(self, worker: Any) -> None:
        try:
            self._server = _bound(runtime_of(worker.app))
        except GuardError as error:
            raise refusal("worker", error) from error

    def start(self, worker: Any) -> None:
        green = worker.pool_cls.__module__.endswith(("gevent", "eventlet"))
        if not hasattr(os, "fork") or green or threading.current_thread() is not threading.main_thread():
            threading.Thread(target=self._server.serve, name="celery-guard-metrics", daemon=True).start()
            return
        arguments = (runtime_of(worker.app), self._server, os.getpid())
        self._process = multiprocessing.get_context("fork").Process(
            target=_in_child, args=arguments, name="celery-guard-metrics", daemon=True
        )
        self._process.start()
        self._server.leave()

    def stop(self, worker: Any) -> None:
        if self._process is None:
            self._server.stop()
        else:
            self._process.terminate()
            self._process.join(5)

    terminate = stop


def _bound(runtime: Runtime) -> Any:
    registry = make_registry(runtime)
    from celery_guard.watch.serve import MetricsServer, address_of

    try:
        address = address_of(str(runtime.settings.metrics))
    except ValueError as error:
        raise SettingError(f"metrics: {error}.") from error
    server = MetricsServer(registry, *address)
    logger.info("metrics are served at %s:%d", address[0], server.port)
    return server


def _in_child(runtime: Runtime, server: Any, parent: int) -> None:
    for number in (signal.SIGINT, signal.SIGHUP, signal.SIGUSR1):
        signal.signal(number, signal.SIG_IGN)
    for number in (signal.SIGTERM, signal.SIGQUIT, signal.SIGCHLD):
        signal.signal(number, signal.SIG_DFL)
    runtime.store.forget_connections()
    threading.Thread(target=_end_with, args=(parent,), name="celery-guard-parent", daemon=True).start()
    server.serve()


def _end_with(parent: int) -> None:
    pause = threading.Event()
    while os.getppid() == parent:
        pause.wait(1)
    os._exit(0)
