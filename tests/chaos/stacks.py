"""The brokers and stores of a scenario: the shared servers, or private ones that may be killed, with a wire before each where it is to be cut."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from celery_guard.testing.databases import database
from celery_guard.testing.servers import (
    PrivateServer,
    private_mariadb,
    private_postgresql,
    private_rabbitmq,
    private_redis,
)
from celery_guard.testing.services import MARIADB, POSTGRESQL, RABBITMQ, REDIS
from celery_guard.testing.wire import Wire, wire

__all__ = ["Place", "Stack", "open_stack", "small_disk"]


@dataclass
class Place:
    """A broker or a store: where the publisher finds it, and where the workers do."""

    kind: str
    url: str
    #: None where the server is shared.
    server: PrivateServer | None = None
    wire: Wire | None = None

    @property
    def wired(self) -> str:
        """Where workers find it."""
        return self.url if self.wire is None else self.wire.url


@dataclass
class Stack:
    """What a fleet stands on."""

    broker: Place
    store: Place
    backend: str
    #: Celery's, for this broker.
    conf: dict[str, Any] = field(default_factory=dict)


def open_stack(broker: str, store: str, folder: Path, stack: ExitStack, *, private: bool, wired: bool) -> Stack:
    """Start what is private, and make what is asked for; ``stack`` ends it all.

    Args:
        broker: ``redis`` (always private: it is flushed), ``rabbitmq`` or ``files``.
        store: ``postgresql``, ``mariadb``, ``sqlite`` or ``redis``.
        private: have servers of one's own, to be killed.
        wired: have a wire before each server.
    """
    conf: dict[str, Any] = {}
    if broker == "redis":
        # what was taken and not acknowledged comes back while the scenario lasts
        conf["broker_transport_options"] = {"visibility_timeout": 20}
    queue, rows = _BROKERS[broker](folder, stack, private), _STORES[store](folder, stack, private)
    backend = f"file://{_made(folder / 'results')}" if broker == "files" else f"{REDIS.need()}2"
    made = Stack(queue, rows, backend, conf)
    for place in (queue, rows):
        if wired and place.kind in _PORTS:
            place.wire = stack.enter_context(wire(place.url, _PORTS[place.kind]))
    return made


_PORTS = {"redis": REDIS.port, "rabbitmq": RABBITMQ.port, "postgresql": POSTGRESQL.port, "mariadb": MARIADB.port}


def _redis_broker(folder: Path, stack: ExitStack, private: bool) -> Place:
    server = stack.enter_context(
        stack.enter_context(private_redis("--appendonly", "yes", "--dir", str(_made(folder / "aof"))))
    )
    return Place("redis", server.url, server)


def _redis_store(folder: Path, stack: ExitStack, private: bool) -> Place:
    kept = ("--appendonly", "yes", "--appendfsync", "always", "--dir", str(_made(folder / "rows")))
    server = stack.enter_context(stack.enter_context(private_redis(*kept)))
    return Place("redis", f"{server.url}?name=chaos", server)


def _rabbitmq(folder: Path, stack: ExitStack, private: bool) -> Place:
    if not private:
        return Place("rabbitmq", RABBITMQ.need())
    server = stack.enter_context(stack.enter_context(private_rabbitmq()))
    return Place("rabbitmq", server.url, server)


def _files(folder: Path, stack: ExitStack, private: bool) -> Place:
    return Place("files", f"files://localhost/{_made(folder / 'queue')}")


def _postgresql(folder: Path, stack: ExitStack, private: bool) -> Place:
    if not private:
        return Place("postgresql", stack.enter_context(database(POSTGRESQL.need())))
    server = stack.enter_context(stack.enter_context(private_postgresql()))
    return Place("postgresql", server.url, server)


def _mariadb(folder: Path, stack: ExitStack, private: bool) -> Place:
    if not private:
        return Place("mariadb", stack.enter_context(database(MARIADB.need())))
    server = stack.enter_context(stack.enter_context(private_mariadb()))
    return Place("mariadb", server.url, server)


def _sqlite(folder: Path, stack: ExitStack, private: bool) -> Place:
    return Place("sqlite", f"sqlite:///{_made(folder / 'disk') / 'guard.db'}")


_Opens = Callable[[Path, ExitStack, bool], Place]
_BROKERS: dict[str, _Opens] = {"redis": _redis_broker, "rabbitmq": _rabbitmq, "files": _files}
_STORES: dict[str, _Opens] = {
    "postgresql": _postgresql,
    "mariadb": _mariadb,
    "sqlite": _sqlite,
    "redis": _redis_store,
}


@contextmanager
def small_disk(folder: Path) -> Iterator[Path]:
    """A file system of a few megabytes, to be filled up. Skips the test where nobody may mount one."""
    mount = [*([] if os.geteuid() == 0 else ["sudo", "-n"])]
    made = subprocess.run(
        [*mount, "mount", "-t", "tmpfs", "-o", f"size=24m,mode=0700,uid={os.geteuid()}", "none", str(_made(folder))]
    )
    if made.returncode != 0:
        pytest.skip("needs somebody who may mount a file system (root, or sudo without a password)")
    try:
        yield folder
    finally:
        subprocess.run([*mount, "umount", "--lazy", str(folder)], check=True)


def _made(folder: Path) -> Path:
    folder.mkdir(exist_ok=True)
    return folder
