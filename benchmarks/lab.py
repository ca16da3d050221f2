"""Where figures are measured: brokers, stores, and processes of the app beside them.

Redis is a server of the run's own, without persistence. PostgreSQL and RabbitMQ are those of the tests (``GUARD_TEST_POSTGRESQL``,
``GUARD_TEST_RABBITMQ``), with databases and queues of the run's own: so their durability is the servers', and stands in the report.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal
from uuid import uuid4

from celery_guard.store import open_store
from celery_guard.testing.databases import database
from celery_guard.testing.servers import private_redis
from celery_guard.testing.services import POSTGRESQL, RABBITMQ

from .cost import Cost, Stopwatch
from .tally import Tally

__all__ = ["CONCURRENCY", "Kind", "Lab", "Side"]

Kind = Literal["plain", "guarded"]

ROOT = Path(__file__).resolve().parents[1]

CONCURRENCY = 2

#: How long a side may take for anything, in seconds, before the run gives up.
_PATIENCE = 600.0


@dataclass(frozen=True)
class Side:
    """One way to do the work: the app, plain or guarded, on a broker and a store."""

    kind: Kind
    environment: dict[str, str]
    folder: Path

    @property
    def store_url(self) -> str:
        return self.environment["CELERY_GUARD_STORE"]

    def with_(self, **environment: str) -> Side:
        """The same with more of an environment."""
        return Side(self.kind, {**self.environment, **environment}, self.folder)

    def tally(self, places: int = 0) -> Tally:
        """A new count, which the processes that are started from here on use."""
        path = self.folder / f"tally-{uuid4().hex[:12]}"
        self.environment["BENCH_TALLY"] = str(path)
        return Tally(path, places)

    def inside(self, what: str, *arguments: object) -> Any:
        """Run one of :mod:`benchmarks.inside` in a process of its own; what it says."""
        command = [sys.executable, "-m", "benchmarks.inside", what, *map(str, arguments)]
        done = subprocess.run(
            command, cwd=ROOT, env=self.environment, check=True, stdout=subprocess.PIPE, timeout=_PATIENCE
        )
        return json.loads(done.stdout.splitlines()[-1])

    def cost(self, what: str, *arguments: object) -> Cost:
        """The same, for what says its cost."""
        return Cost(**self.inside(what, *arguments))

    @contextmanager
    def worker(self, *, relay: bool) -> Iterator[subprocess.Popen[bytes]]:
        """A prefork worker with two children; with the guard's relay in it, or without."""
        command = [
            sys.executable, "-m", "celery", "-A", "benchmarks.app", "worker", "-P", "prefork", "-c", str(CONCURRENCY),
            "-n", f"{uuid4().hex[:12]}@bench", "-l", "WARNING", "--without-gossip", "--without-mingle", "--without-heartbeat",
        ]  # fmt: skip
        environment = {**self.environment, "CELERY_GUARD_RELAY": str(relay).lower()}
        with (self.folder / "worker.log").open("ab") as log:
            process = subprocess.Popen(
                command, cwd=ROOT, env=environment, stdout=log, stderr=log, start_new_session=True
            )
        try:
            yield process
        finally:
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(60)
            finally:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
                process.wait()

    def wait(self, process: subprocess.Popen[bytes], tally: Tally, count: int) -> int:
        """Until so many bodies have run; how many have."""
        until = time.monotonic() + _PATIENCE
        while (total := tally.total) < count:
            if process.poll() is not None or time.monotonic() > until:
                log = (self.folder / "worker.log").read_text(errors="replace")
                raise RuntimeError(f"{total} of {count} jobs were run by a {self.kind} worker:\n{log[-4000:]}")
            time.sleep(0.002)
        return total

    def drain(self, jobs: int, *, relay: bool) -> Cost:
        """What a worker pays for so many jobs that wait for it; the first tenth is not counted."""
        tally = self.tally()
        with self.worker(relay=relay) as process:
            watch = Stopwatch(process.pid, self.wait(process, tally, jobs // 10))
            cost = watch.stop(self.wait(process, tally, jobs))
        if self.kind == "guarded":
            self._all_succeeded()
        return cost

    def _all_succeeded(self) -> None:
        store = open_store(self.store_url)
        try:
            counts = {state.value: number for state, number in store.counts().items() if number}
        finally:
            store.close()
        if set(counts) != {"succeeded"}:
            raise RuntimeError(f"not every guarded job has succeeded: {counts}")


class Lab:
    """Everything of one run; closed, nothing is left of it."""

    def __init__(self) -> None:
        self._stack = ExitStack()
        self.folder = Path(self._stack.enter_context(tempfile.TemporaryDirectory(prefix="guard-bench-")))
        self._redis: str | None = None

    def __enter__(self) -> Lab:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    @property
    def redis(self) -> str:
        """The run's own Redis, without a database's number at its end."""
        if self._redis is None:
            server = self._stack.enter_context(private_redis())
            self._redis = server.start().url.rpartition("/")[0] + "/"
        return self._redis

    @contextmanager
    def side(self, kind: Kind, broker: str, store: str) -> Iterator[Side]:
        """A side with a queue and an empty store of its own: ``redis``, ``rabbitmq``; ``postgresql``, or a server's URL."""
        name = uuid4().hex[:12]
        folder = self.folder / name
        folder.mkdir()
        with ExitStack() as stack:
            broker_url = self.redis + "1" if broker == "redis" else RABBITMQ.need()
            server = {"redis": lambda: self.redis + "3", "postgresql": POSTGRESQL.need}.get(store, lambda: store)()
            store_url = stack.enter_context(database(server))
            opened = open_store(store_url)
            opened.upgrade()
            opened.close()
            environment = {
                **{name: value for name, value in os.environ.items() if not name.startswith(("CELERY", "BENCH_"))},
                "BENCH_KIND": kind,
                "BENCH_BROKER": broker_url,
                "BENCH_QUEUE": f"bench-{name}",
                "CELERY_GUARD_STORE": store_url,
            }
            side = Side(kind, environment, folder)
            side.tally()
            try:
                yield side
            finally:
                side.inside("drop")
