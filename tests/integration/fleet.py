"""Real workers, real brokers, real stores, for one test: started, killed and asked by pid."""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from celery_guard.job.row import Job
from celery_guard.store.protocol import Store

__all__ = ["Fleet", "Worker", "eventually", "left_in"]

ROOT = Path(__file__).parents[2]

#: The app that workers run, unless a test has one of its own.
APP = "tests.integration.app"


def eventually(true: Callable[[], Any], seconds: float = 30, what: str = "") -> Any:
    """The first true answer; asked until then. An answer that never comes fails the test with the last one."""
    until = time.monotonic() + seconds
    answer = true()
    while not answer:
        if time.monotonic() > until:
            raise AssertionError(f"never became true: {what or true} (last answer: {answer!r})")
        time.sleep(0.02)
        answer = true()
    return answer


def left_in(file: Path) -> list[Any]:
    """What bodies have written, a line of JSON each; a line that is being written is none yet."""
    whole, _, _ = file.read_text().rpartition("\n")
    return [json.loads(line) for line in whole.splitlines()]


class Process:
    """A process and its children, in a group of their own, with what they say kept in a file."""

    def __init__(self, command: list[str], environment: dict[str, str], log: Path, cwd: Path = ROOT) -> None:
        self.log = log
        self._file = log.open("wb")
        self.process = subprocess.Popen(
            command, cwd=cwd, env=environment, stdout=self._file, stderr=subprocess.STDOUT, start_new_session=True
        )

    def says(self, words: str) -> None:
        """Wait until it has said these words; fails when it has ended without."""

        def said() -> bool:
            if self.process.poll() is not None and words not in self.output():
                raise AssertionError(f"it ended without saying {words!r}:\n{self.output()}")
            return words in self.output()

        eventually(said, what=words)

    def output(self) -> str:
        return self.log.read_text(errors="replace")

    def terminate(self, seconds: float = 30) -> int:
        """A warm shutdown; its exit status."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        try:
            return self.process.wait(seconds)
        finally:
            self.kill()

    def pause(self) -> None:
        """SIGSTOP for the node: it holds what it holds, and does nothing about it."""
        os.killpg(self.process.pid, signal.SIGSTOP)

    def resume(self) -> None:
        """SIGCONT for the node."""
        os.killpg(self.process.pid, signal.SIGCONT)

    def kill(self) -> None:
        """SIGKILL for the node: main process, children and relay at once."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        self._file.close()


class Worker(Process):
    """One ``celery worker`` process (and its children)."""

    def __init__(
        self, environment: dict[str, str], module: str, pool: str, concurrency: int, name: str, log: Path, *more: str
    ) -> None:
        command = [
            sys.executable, "-m", "celery", "-A", module, "worker", "-P", pool, "-c", str(concurrency),
            # a node's name is a queue of its own, which two tests that run at a time must not share
            "-n", f"{name}@{log.parent.name}", "-l", "INFO", "--without-gossip", "--without-mingle", "--without-heartbeat", *more,
        ]  # fmt: skip
        super().__init__(command, environment, log)

    def ready(self) -> Worker:
        self.says(" ready.")
        return self


class Fleet:
    """The workers of one test, their store, and what their bodies left behind."""

    def __init__(
        self, folder: Path, broker: str, store_url: str, backend: str | None, module: str = APP, **conf: Any
    ) -> None:
        self.folder = folder
        #: The module of the app: ``app.py``, or one that adds tasks to it.
        self.module = module
        self.queue = f"q-{folder.name}"
        self.flags = folder / "flags"
        self.flags.mkdir()
        self.effects = folder / "effects"
        self.workers: list[Process] = []
        self.environment = {
            **{name: value for name, value in os.environ.items() if not name.startswith(("CELERY", "APP_"))},
            "APP_BROKER": broker,
            "APP_EFFECTS": str(self.effects),
            "APP_FLAGS": str(self.flags),
            "APP_CONF": json.dumps({"task_default_queue": self.queue, "worker_prefetch_multiplier": 1, **conf}),
            "CELERY_GUARD_STORE": store_url,
            "CELERY_GUARD_LEASE": "2s",
            "CELERY_GUARD_SWEEP_EVERY": "300ms",
            "CELERY_GUARD_POLL": "200ms",
            "CELERY_GUARD_CRASH_BASE": "100ms",
            "CELERY_GUARD_CRASH_CAP": "500ms",
            "CELERY_GUARD_TELL_WITHIN": "2s",
            "CELERY_GUARD_SUSPECT_AFTER": "1s",
            **({"APP_BACKEND": backend} if backend else {}),
        }
        self._app: Any = None

    @property
    def app(self) -> Any:
        """The app module, imported in this process with the test's environment."""
        if self._app is None:
            old = {name: os.environ.get(name) for name in self.environment}
            os.environ.update(self.environment)
            try:
                self._forget_app()
                self._app = importlib.import_module(self.module)
                _ = self._app.guard.settings
                self._app.app.finalize()
                self._app.app.set_default()
            finally:
                for name, value in old.items():
                    if value is None:
                        os.environ.pop(name, None)
                    else:
                        os.environ[name] = value
        return self._app

    @property
    def store(self) -> Store:
        store: Store = self.app.guard.store
        return store

    def worker(self, pool: str = "prefork", concurrency: int = 2, *more: str, ready: bool = True, **env: str) -> Worker:
        number = len(self.workers)
        worker = Worker(
            {**self.environment, **env}, self.module, pool, concurrency, f"w{number}",
            self.folder / f"worker{number}.log", *more,
        )  # fmt: skip
        self.workers.append(worker)
        return worker.ready() if ready else worker

    def relay(self, **env: str) -> Process:
        """A relay in a process of its own, on its way up."""
        number = len(self.workers)
        command = [sys.executable, "-m", "celery", "-A", self.module, "guard", "relay"]
        relay = Process(command, {**self.environment, **env}, self.folder / f"relay{number}.log")
        self.workers.append(relay)
        return relay

    def configure(self, **conf: Any) -> None:
        """Celery settings of the processes that are started from here on."""
        self.environment["APP_CONF"] = json.dumps({**json.loads(self.environment["APP_CONF"]), **conf})

    def beat(self, *more: str, **env: str) -> Process:
        """A beat in a process of its own, on its way up; its state is in a file of its own."""
        number = len(self.workers)
        command = [
            sys.executable, "-m", "celery", "-A", self.module, "beat", "-l", "INFO", "--pidfile=",
            "-s", str(self.folder / f"schedule{number}"), *more,
        ]  # fmt: skip
        beat = Process(command, {**self.environment, **env}, self.folder / f"beat{number}.log")
        self.workers.append(beat)
        return beat

    def says(self, code: str, **env: str) -> str:
        """What a process that has the app as ``m`` prints: a publisher of another release, say."""
        command = [sys.executable, "-c", f"import {self.module} as m\n{code}"]
        environment = {**self.environment, **env}
        return subprocess.run(command, cwd=ROOT, env=environment, check=True, text=True, stdout=subprocess.PIPE).stdout

    def raise_flag(self, name: str) -> None:
        (self.flags / name).touch()

    def marks(self) -> list[str]:
        """What bodies left, in order."""
        return [line[0] for line in self.lines()]

    def lines(self) -> list[list[Any]]:
        """[what, job id, attempt, fence] of each mark."""
        return left_in(self.effects) if self.effects.exists() else []

    def counted(self) -> Counter[str]:
        return Counter(self.marks())

    def job(self, id: str) -> Job:
        """The job's row, which is there."""
        job = self.store.job(id)
        assert job is not None, f"no row of {id}"
        return job

    def state(self, id: str) -> str | None:
        job = self.store.job(id)
        return None if job is None else job.state.value

    def until(self, id: str, *states: str, seconds: float = 30) -> Any:
        """Wait until the job is in one of the states; the job."""
        eventually(lambda: self.state(id) in states, seconds, f"{id} in {states}")
        return self.store.job(id)

    def settled(self, id: str, seconds: float = 30) -> Any:
        return self.until(id, "succeeded", "dead", "cancelled", "dropped", seconds=seconds)

    def all_quiet(self, seconds: float = 30) -> None:
        """Wait until no job waits or runs."""
        busy = ("pending", "sent", "running", "unknown")
        eventually(lambda: not any(s.value in busy for s in self.store.counts()), seconds, "all jobs at their end")

    def close(self) -> None:
        for worker in self.workers:
            worker.kill()
            # shown by pytest where the test failed
            print(f"--- {worker.log.name}\n{worker.output()[-6000:]}")
        if self._app is not None:
            self._app.guard.store.close()
            self._app.app.close()
            self._forget_app()

    def _forget_app(self) -> None:
        for name in (APP, self.module):
            sys.modules.pop(name, None)


def in_thread(function: Callable[[], Any]) -> threading.Thread:
    thread = threading.Thread(target=function, daemon=True)
    thread.start()
    return thread
