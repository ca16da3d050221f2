"""A fleet of two versions of the guard: its store, its broker, and processes that run the one or the other."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
import redis

from celery_guard.testing.databases import database
from celery_guard.testing.servers import private_redis
from celery_guard.testing.services import MARIADB, POSTGRESQL, REDIS
from tests.integration.fleet import Process, left_in

from .released import unpack
from .rows import RedisRows, Rows, SqlRows

#: Stores whose tables a migration upgrades.
SQL = ("sqlite", "postgresql", "mariadb")

_ROOT = Path(__file__).parents[2]
_APPS = Path(__file__).parent / "apps"


class TwoVersions:
    """Processes of the last release (``old``) and of this code (``new``) on one store and one broker."""

    def __init__(self, folder: Path, old: Path, store: str, broker: str, backend: str, **conf: Any) -> None:
        self.folder = folder
        self.flags = folder / "flags"
        self.flags.mkdir()
        self.effects = folder / "effects"
        self.effects.touch()
        self.store = store
        self.rows: Rows = (RedisRows if store.startswith("redis") else SqlRows)(store)
        self._from = {"old": old, "new": _ROOT}
        self._environment = {
            **{name: value for name, value in os.environ.items() if not name.startswith(("CELERY", "APP_", "PYTHON"))},
            "APP_BROKER": broker,
            "APP_BACKEND": backend,
            "APP_CONF": json.dumps({"task_default_queue": f"q-{folder.name}", "worker_prefetch_multiplier": 1, **conf}),
            "UPGRADE_EFFECTS": str(self.effects),
            "UPGRADE_FLAGS": str(self.flags),
            "CELERY_GUARD_STORE": store,
            "CELERY_GUARD_LEASE": "5s",
            "CELERY_GUARD_SWEEP_EVERY": "300ms",
            "CELERY_GUARD_POLL": "200ms",
            "CELERY_GUARD_SUSPECT_AFTER": "2s",
        }
        self._started: list[tuple[str, Process]] = []

    def start(self, code: str, *words: str) -> Process:
        """A process of ``celery -A upgraded_shop ...``."""
        command = [sys.executable, "-m", "celery", "-A", "upgraded_shop", *words]
        log = self.folder / f"{len(self._started)}-{code}-{words[0]}.log"
        process = Process(command, self._of(code), log, cwd=self._from[code])
        self._started.append((code, process))
        return process

    def of(self, code: str) -> list[Process]:
        """Every process of that version."""
        return [process for started, process in self._started if started == code]

    def worker(self, code: str) -> Process:
        """A worker with a relay inside."""
        name = f"{code}{len(self._started)}@{self.folder.name}"
        words = ("-P", "prefork", "-c", "3", "-n", name, "-l", "INFO", "--without-gossip", "--without-mingle")
        return self.start(code, "worker", *words)

    def guard(self, code: str, *words: str) -> subprocess.CompletedProcess[str]:
        """A word of the command line, to its end."""
        return self._run(code, "-m", "celery", "-A", "upgraded_shop", "guard", *words)

    def send(self, code: str, batch: str) -> list[str]:
        """The ids of a batch, which a publisher of that version has sent."""
        done = self.publish(code, f"print(' '.join(m.send({batch!r})))")
        assert done.returncode == 0, done.stderr
        return done.stdout.split()

    def publish(self, code: str, program: str) -> subprocess.CompletedProcess[str]:
        """A program that has the app as ``m``."""
        return self._run(code, "-c", f"import upgraded_shop as m\n{program}")

    def say(self, flag: str) -> None:
        """Raise a flag that bodies look for."""
        (self.flags / flag).touch()

    def by(self) -> dict[str, list[str]]:
        """Which code left each mark."""
        found: dict[str, list[str]] = {}
        for what, code in left_in(self.effects):
            found.setdefault(what, []).append(code)
        return found

    def charged(self) -> Counter[str]:
        """The orders that were charged, and how often."""
        return self.rows.charged(what for what, _ in left_in(self.effects))

    def _of(self, code: str) -> dict[str, str]:
        where = self._from[code]
        path = os.pathsep.join(map(str, (where, _APPS)))
        return {**self._environment, "PYTHONPATH": path, "UPGRADE_CODE": code, "UPGRADE_FROM": str(where)}

    def _run(self, code: str, *words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, *words], cwd=self._from[code], env=self._of(code), capture_output=True, text=True, check=False,
            timeout=100,
        )  # fmt: skip

    def close(self) -> None:
        print("not succeeded:", *self.rows.left(), sep="\n")
        for _, process in self._started:
            process.kill()
            print(f"--- {process.log.name}\n{process.output()[-6000:]}")
        self.rows.close()


@pytest.fixture(scope="session")
def released(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the package of the last release lies."""
    return unpack(tmp_path_factory.mktemp("released"))


@pytest.fixture(params=[*SQL, "redis"])
def fleet(request: pytest.FixtureRequest, released: Path, tmp_path: Path) -> Iterator[TwoVersions]:
    """On tables that the last release has made."""
    folder = tmp_path / f"upgrade-{uuid4().hex[:12]}"
    folder.mkdir()
    with ExitStack() as stack:
        if request.param == "sqlite":
            for name in ("queue", "results"):
                (folder / name).mkdir()
            fleet = TwoVersions(
                folder, released, f"sqlite:///{folder / 'guard.db'}", f"files://localhost/{folder / 'queue'}",
                f"file://{folder / 'results'}",
            )  # fmt: skip
        else:
            server = REDIS.need()
            store = _redis(folder, stack) if request.param == "redis" else _database(request.param, stack)
            stack.callback(_forget, server + "1", folder.name)
            fleet = TwoVersions(
                folder, released, store, server + "1", server + "2",
                broker_transport_options={"visibility_timeout": 3600, "global_keyprefix": f"{folder.name}:"},
            )  # fmt: skip
        stack.callback(fleet.close)
        made = fleet.guard("old", "store", "upgrade")
        assert made.returncode == 0, made.stderr
        fleet.rows.make()
        yield fleet


def _database(kind: str, stack: ExitStack) -> str:
    return stack.enter_context(database({"postgresql": POSTGRESQL, "mariadb": MARIADB}[kind].need()))


def _redis(folder: Path, stack: ExitStack) -> str:
    """A server of one's own, that keeps what it was given."""
    kept = folder / "rows"
    kept.mkdir()
    options = ("--appendonly", "yes", "--appendfsync", "always", "--dir", str(kept))
    server = stack.enter_context(stack.enter_context(private_redis(*options)))
    return f"{server.url}?name=shop"


def _forget(url: str, prefix: str) -> None:
    with redis.Redis.from_url(url) as client:
        for key in client.scan_iter(f"{prefix}:*", count=1000):
            client.delete(key)
