"""Three ways to run the one relay: in a process beside a worker's pool, as a beat task, in the foreground.

In a worker it is a process of its own where that works (POSIX, threads not patched), so that publishing does not share an interpreter with
the worker's main loop; elsewhere a thread. It finishes its batch when the worker stops, ends when its parent has died, and is
started again, with growing pauses, when it dies.
"""

from __future__ import annotations

import logging
import multiprocessing
import os
import random
import signal
import socket
import threading
import time
from collections.abc import Iterable
from datetime import timedelta
from typing import Any

from celery import bootsteps

from celery_guard.contract.backoff import Backoff
from celery_guard.flow.relay import Relay
from celery_guard.flow.sweep import Sweep

from .lost import tell_of_lost
from .publisher import BrokerPublisher
from .runtime import Runtime, runtime_of
from .traced import TracedPublisher

__all__ = ["RelayStep", "make_relay", "run_in_foreground"]

logger = logging.getLogger("celery_guard.relay")

_RESTART = Backoff(base=0.5, cap=30)
#: One that lived for so long (seconds) was well: the next death is the first again.
_HEALTHY = 60.0


def make_relay(runtime: Runtime) -> Relay:
    """A relay for this process or thread, with a broker connection of its own."""
    name = f"{socket.gethostname()[:60]}:{os.getpid()}:{threading.get_native_id()}"
    publisher = TracedPublisher(BrokerPublisher(runtime.app, runtime.encryption), runtime.tracing)
    sweep = Sweep(
        runtime.store, publisher, runtime.settings, runtime.contract_named, runtime.knows, name, tell_of_lost(runtime)
    )
    tell, hears = runtime.observers.tell, runtime.observers.hear
    return Relay(runtime.store, publisher, sweep, runtime.settings, name, tell, hears)


def run_in_foreground(runtime: Runtime) -> None:
    """Relay until SIGTERM or SIGINT, then finish the batch at hand."""
    stop = threading.Event()
    _stop_at((signal.SIGTERM, signal.SIGINT), stop)
    make_relay(runtime).run(stop)


class RelayStep(bootsteps.StartStopStep):  # type: ignore[misc]
    """Runs a relay for as long as the worker runs."""

    def __init__(self, worker: Any, **kwargs: Any) -> None:
        super().__init__(worker, **kwargs)
        self._beside: _Beside | None = None

    def include_if(self, worker: Any) -> bool:
        runtime = runtime_of(worker.app)
        return runtime.meant and runtime.settings.relay

    def start(self, worker: Any) -> None:
        forks = (
            hasattr(os, "fork")
            and threading.current_thread() is threading.main_thread()
            and not worker.pool_cls.__module__.endswith(("gevent", "eventlet"))
        )
        runtime = runtime_of(worker.app)
        if not forks:
            # imports and all, before the pool forks: a child waits for ever for what another thread was about to import
            runtime.store  # noqa: B018
        self._beside = _Beside(runtime, forks)
        self._beside.start()

    def stop(self, worker: Any) -> None:
        if self._beside is not None:
            self._beside.stop()

    terminate = stop


class _Beside(threading.Thread):
    """Looks after the relay of a worker: starts it, starts it again when it dies, stops it."""

    def __init__(self, runtime: Runtime, forks: bool) -> None:
        super().__init__(name="celery-guard-relay", daemon=True)
        self._runtime = runtime
        self._forks = forks
        self._stopped = threading.Event()
        self._starting = threading.Lock()
        self._process: Any = None
        if forks:
            self._fork()

    def run(self) -> None:
        deaths = 0
        while not self._stopped.is_set():
            began = time.monotonic()
            died = self._live()
            if self._stopped.is_set():
                return
            deaths = 0 if time.monotonic() - began > _HEALTHY else deaths
            pause = _RESTART.delay(deaths, random.Random(), timedelta(seconds=0.5))
            # one that was told to stop, with the whole process group as often as not, has done nothing wrong
            level, how = (logging.INFO, "was told to stop") if died is None else (logging.ERROR, died)
            logger.log(level, "the relay %s; starting it again in %s", how, pause)
            deaths += 1
            if not self._stopped.wait(pause.total_seconds()) and self._forks:
                self._fork()

    def _live(self) -> str | None:
        """One relay's life; how it died, or None where it was told to stop."""
        if self._forks:
            self._process.join()
            return f"died (exit code {self._process.exitcode})" if self._process.exitcode else None
        try:
            make_relay(self._runtime).run(self._stopped)
        except Exception as error:
            logger.debug("the relay's thread", exc_info=True)
            return f"died ({error!r})"
        return None

    def stop(self) -> None:
        """Let the relay finish its batch; kill it if that takes longer than ``drain``."""
        with self._starting:
            self._stopped.set()
        within = self._runtime.settings.drain.total_seconds()
        if self._process is None:
            self.join(within)
            return
        until = time.monotonic() + within
        while self._process.is_alive() and time.monotonic() < until:
            # again and again: one that was only just forked does not hear it yet
            self._process.terminate()
            self._process.join(min(1.0, within))
        if self._process.is_alive():
            logger.error("the relay did not end within %s s; what it had taken is published by another", within)
            self._process.kill()

    def _fork(self) -> None:
        context = multiprocessing.get_context("fork")
        with self._starting:
            if self._stopped.is_set():
                return
            self._process = context.Process(
                target=_in_child, args=(self._runtime, os.getpid()), name="celery-guard-relay"
            )
            self._process.start()


def _stop_at(numbers: Iterable[int], stop: threading.Event) -> None:
    """Have signals set ``stop``: from a thread, since a handler may have interrupted the very wait that holds its lock."""

    def handler(*_: object) -> None:
        threading.Thread(target=stop.set, name="celery-guard-stop", daemon=True).start()

    for number in numbers:
        signal.signal(number, handler)


def _in_child(runtime: Runtime, parent: int) -> None:
    stop = threading.Event()
    for number in (signal.SIGINT, signal.SIGHUP, signal.SIGUSR1):
        signal.signal(number, signal.SIG_IGN)
    _stop_at((signal.SIGTERM, signal.SIGQUIT), stop)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)

    def watch() -> None:
        while not stop.wait(1):
            if os.getppid() != parent:
                stop.set()

    runtime.store.forget_connections()
    threading.Thread(target=watch, name="celery-guard-parent", daemon=True).start()
    try:
        make_relay(runtime).run(stop)
    finally:
        runtime.flush_telemetry()
