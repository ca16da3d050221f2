"""What an open Redis store is: its server, its version, what it cannot keep, and how it waits. No job is touched here."""

from __future__ import annotations

import time
from collections.abc import Mapping
from datetime import timedelta
from typing import Any
from uuid import uuid4

from redis.exceptions import ResponseError

from celery_guard.settings import masked
from celery_guard.store.patience import Patience

from .address import address
from .server import Server
from .version import VERSION

__all__ = ["OpenStore"]

#: What a store that copies itself without waiting cannot keep when its primary is lost.
_LIMITS = {
    "G1": "a failover, or a crash with appendfsync less than always, may forget the jobs that were accepted last",
    "G2": "it cannot join a transaction of the caller's: what is enqueued goes out at once, and of one call with more than 500 jobs, or 4 MiB, "
    "each 500 by themselves",
    "G3": "a failover may forget a claim, and the body may start again elsewhere; the first attempt's writes are refused",
    "G4": "a failover may forget a key or a result that was written last, and the body may run again",
    "G5": "a body's own writes are on another database, and cannot be committed together with its job's end",
}


class OpenStore:
    """The part of a store that its journeys stand on.

    Args:
        url: see :mod:`celery_guard.store.redis.address`.
        notify: wait for the server to call (BLPOP), instead of looking again after a while.
        pool_size: connections that this process has open at most, besides the one that waits.
        pool_timeout: how long to wait for one of them, in seconds.
        patience: how often and how long an operation is repeated on errors that pass.

    Raises:
        SettingError: the URL is no store's.
    """

    def __init__(
        self,
        url: str,
        *,
        notify: bool = True,
        pool_size: int = 5,
        pool_timeout: float = 10,
        patience: Patience | None = None,
    ) -> None:
        where = address(url)
        self._shown = masked(url)
        self._notify = notify
        self._server = Server(
            where, self._shown, pool_size=pool_size + notify, pool_timeout=pool_timeout, patience=patience or Patience()
        )
        #: No call waits for an answer longer than the connection does.
        self._longest_wait = float(where.options["socket_timeout"]) / 2

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._shown!r})"

    def upgrade(self) -> None:
        """Bring the store to this version; a newer one is left as it is, and said."""
        self._server.run("upgrade", {"to": VERSION, "id": str(uuid4())}, versioned=False)

    def upgrade_sql(self) -> str:
        """What :meth:`upgrade` would run, as commands for ``redis-cli``."""
        key = f'"{self._server.tag}:store"'
        words = {"version": str(VERSION), "id": str(uuid4()), "created": "0"}
        return "".join(f"HSETNX {key} {name} {value}\n" for name, value in words.items())

    def check(self) -> None:
        """Raise ``StoreSchemaError`` unless the store is of this version."""
        self._server.run("check", {})

    def server(self) -> Mapping[str, str | None]:
        """When the server evicts, and what of it is on disk; None for what this user may not ask."""
        info = self._said("INFO")
        lines = [] if info is None else info.decode().splitlines()
        said = dict(line.split(":", 1) for line in lines if ":" in line)
        fsync = self._said("CONFIG", "GET", "appendfsync")
        return {
            "maxmemory": said.get("maxmemory"),
            "maxmemory-policy": said.get("maxmemory_policy"),
            "appendonly": {"1": "yes", "0": "no"}.get(said.get("aof_enabled", "")),
            "appendfsync": fsync[1].decode() if fsync else None,
        }

    def _said(self, *command: str) -> Any:
        try:
            return self._server.ask(*command)
        except ResponseError:
            return None

    def forget_connections(self) -> None:
        """Called in a new process after fork: drop every inherited connection without closing it for the parent."""
        self._server.forget()

    def close(self) -> None:
        """Close what this process holds open."""
        self._server.close()

    @property
    def limits(self) -> Mapping[str, Any]:
        """What this store cannot keep, by guarantee."""
        return dict(_LIMITS)

    def wait(self, timeout: timedelta) -> bool:
        """Wait until a script says that there may be work, or the time is over."""
        seconds = max(0.0, timeout.total_seconds())
        if not self._notify:
            time.sleep(seconds)
            return False
        # Redis takes 0 for ever.
        return (
            self._server.ask("BLPOP", f"{self._server.tag}:wake", max(0.01, min(seconds, self._longest_wait)))
            is not None
        )
