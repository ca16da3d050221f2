"""How a relay that found nothing waits for work: until the database calls, or its time is over. Best effort only.

PostgreSQL calls with NOTIFY, heard on a connection of its own. A transaction pooler swallows such calls, and other databases
have none: then the time simply runs out, and the relay looks again. A pooler is known by the session: it is not the one that was
connected to. Nobody listens there, since a LISTEN would stay on a session that is somebody else's next. What the store of
this very process accepted is heard in every case.

Transactions that have called NOTIFY commit one after the other, so a relay is called only while it rests. It says so by an advisory lock of the session
that listens, which whoever accepts a job tries to share until its transaction ends::

    relay:   looks, finds nothing    takes the lock    looks once more, finds nothing    sleeps                     is woken
    sender:                                                                  cannot share the lock: calls, commits

A sender that could share it has not called, and the relay cannot have the lock until that one's job can be seen. A relay that is busy gives the lock back.
"""

from __future__ import annotations

import contextlib
import logging
import math
import selectors
import socket
import threading
import time
from collections.abc import Callable
from datetime import timedelta
from typing import Any

from .statements.accept import CHANNEL, REST_CLASS, RESTS

__all__ = ["Bell", "PostgresBell"]

logger = logging.getLogger("celery_guard.store")

#: How long a relay goes on without hearing before it tries to listen again, and how long a try may take. Seconds.
_DEAF = 10

#: How long a relay that listens and is not called waits before it looks again, and tries to rest. Seconds.
_RESTLESS = 0.05

#: So many batches in a row, without a rest between them, and a relay is busy.
_BUSY = 2


class Bell:
    """Rung by this process alone."""

    def __init__(self) -> None:
        self._rung = threading.Event()

    def ring(self) -> None:
        """There may be work."""
        self._rung.set()

    def took(self, count: int) -> None:
        """A relay of this process has taken so many jobs."""

    def wait(self, timeout: timedelta) -> bool:
        """Whether there was a hint before the time was over."""
        heard = self._rung.wait(max(0.0, timeout.total_seconds()))
        self._rung.clear()
        return heard

    def forget(self) -> None:
        """In another process: leave what was inherited."""
        self._rung = threading.Event()

    def close(self) -> None:
        """Give back what listening took."""


class PostgresBell(Bell):
    """Rung by this process, and by NOTIFY on a psycopg connection that listens from the first wait on."""

    def __init__(self, connect: Callable[..., Any], error: type[Exception]) -> None:
        super().__init__()
        self._new_connection = connect
        self._error = error
        self._reset()

    def _reset(self) -> None:
        self._connection: Any = None
        self._deaf_until = 0.0
        self._ear: socket.socket | None = None
        self._mouth: socket.socket | None = None
        self._waiting = threading.Lock()
        #: Whoever accepts a job calls this session.
        self._rests = False
        self._batches = 0

    def ring(self) -> None:
        """There may be work."""
        super().ring()
        if self._mouth is not None:
            # Full of calls that nobody has heard yet, or closed: either way nobody misses this one.
            with contextlib.suppress(OSError):
                self._mouth.send(b"!")

    def wait(self, timeout: timedelta) -> bool:
        """Whether there was a hint before the time was over."""
        if not self._waiting.acquire(blocking=False):
            # Another thread has the connection's ear.
            return super().wait(timeout)
        try:
            self._batches = 0
            return self._listen(time.monotonic() + max(0.0, timeout.total_seconds()))
        finally:
            self._waiting.release()

    def took(self, count: int) -> None:
        """A relay of this process has taken so many jobs; one that has enough to do needs no calls."""
        if not (count and self._rests):
            return
        self._batches += 1
        if self._batches >= _BUSY and self._waiting.acquire(blocking=False):
            try:
                self._rise()
            finally:
                self._waiting.release()

    def _listen(self, until: float) -> bool:
        if self._ear is None:
            self._ear, self._mouth = _pair()
        if self._listening() is not None and not self._rests:
            if self._rest():
                # what came before was not called for
                return True
            until = min(until, time.monotonic() + _RESTLESS)
        while True:
            called = self._called(self._listening())
            if self._rung.is_set() or called:
                self._rung.clear()
                return True
            left = until - time.monotonic()
            if left <= 0:
                return False
            with selectors.DefaultSelector() as selector:
                selector.register(self._ear, selectors.EVENT_READ)
                if self._connection is not None:
                    selector.register(self._connection, selectors.EVENT_READ)
                selector.select(left)
            with contextlib.suppress(BlockingIOError):
                self._ear.recv(4096)

    def _listening(self) -> Any:
        """The connection that listens; None where there is none to be had now."""
        if self._connection is None and time.monotonic() >= self._deaf_until:
            # Whatever goes wrong, another try is worth a connection only a while later.
            self._deaf_until = time.monotonic() + _DEAF
            with contextlib.suppress(self._error):
                self._connection = self._connect()
                if self._connection is None:
                    logger.info(
                        "the store is behind a connection pooler: it is polled, since NOTIFY is not heard through one"
                    )
                    self._deaf_until = math.inf
        return self._connection

    def _connect(self) -> Any:
        """A connection that listens; None where a pooler stands before the server."""
        connection = self._new_connection(connect_timeout=_DEAF, autocommit=True)
        try:
            ((session,),) = connection.execute("SELECT pg_backend_pid()").fetchall()
            if session != connection.info.backend_pid:
                connection.close()
                return None
            # what is heard while a statement runs is handed over there, and to nobody else
            connection.add_notify_handler(lambda call: self._rung.set())
            connection.execute(f"LISTEN {CHANNEL}")
        except BaseException:
            connection.close()
            raise
        return connection

    def _rest(self) -> bool:
        """Be called from now on. False where others are, or somebody has not called and not committed yet; or where the connection is lost."""
        for number in RESTS:
            try:
                ((self._rests,),) = self._connection.execute(
                    "SELECT pg_try_advisory_lock(%s, %s)", (REST_CLASS, number)
                ).fetchall()
            except self._error:
                self._lose()
                return False
            if self._rests:
                return True
        return False

    def _rise(self) -> None:
        """Be called no more."""
        self._rests = False
        try:
            self._connection.execute("SELECT pg_advisory_unlock_all()")
        except self._error:
            self._lose()

    def _lose(self) -> None:
        connection, self._connection, self._rests = self._connection, None, False
        connection.close()

    def _called(self, connection: Any) -> bool:
        """Whether a call has arrived, on a connection that may have died meanwhile."""
        if connection is None:
            return False
        try:
            connection.pgconn.consume_input()
        except self._error:
            self._lose()
            return False
        called = False
        while connection.pgconn.notifies() is not None:
            called = True
        return called

    def forget(self) -> None:
        """In another process: leave what was inherited to the one that made it."""
        super().forget()
        self._inherited = (self._connection, self._ear, self._mouth)
        self._reset()

    def close(self) -> None:
        """Give back what listening took."""
        for held in (self._connection, self._ear, self._mouth):
            if held is not None:
                held.close()
        self._reset()


def _pair() -> tuple[socket.socket, socket.socket]:
    ear, mouth = socket.socketpair()
    ear.setblocking(False)
    mouth.setblocking(False)
    return ear, mouth
