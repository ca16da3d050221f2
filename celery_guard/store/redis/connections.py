"""The connections of one process to the server: as many as it may have, the one that was used last taken first.

The driver's own pool asks the socket, and its instruments, at every turn; that costs more than a short script does. Here a connection is
asked whether it is still good only after a rest.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from typing import Any

import redis

from .primary import EXHAUSTED

__all__ = ["Connections"]

#: A connection that was used less long ago is taken to be good (seconds): where it is not, the call is repeated.
_FRESH = 1.0


class Connections:
    """Opens nothing before its first use. Safe for threads; not for use after a fork.

    Args:
        options: of one connection, as ``redis.connection.parse_url`` has them.
        most: how many there may be.
        timeout: how long to wait for one, in seconds.
    """

    def __init__(self, options: Mapping[str, Any], *, most: int, timeout: float) -> None:
        self._options = dict(options)
        self._kind = self._options.pop("connection_class", redis.Connection)
        self._timeout = timeout
        self._places = threading.Semaphore(most)
        self._made: list[Any] = []
        #: What rests, and since when.
        self._resting: list[tuple[Any, float]] = []

    def take(self) -> Any:
        """A connection for the caller alone. Raises the driver's ``ConnectionError`` where none is to be had."""
        if not self._places.acquire(timeout=self._timeout):
            raise redis.ConnectionError(EXHAUSTED)
        try:
            return self._next()
        except BaseException:
            self._places.release()
            raise

    def _next(self) -> Any:
        try:
            connection, since = self._resting.pop()
        except IndexError:
            connection = self._kind(**self._options)
            self._made.append(connection)
            return connection
        if time.monotonic() - since > _FRESH and not _good(connection):
            # it connects anew when it is used
            connection.disconnect()
        return connection

    def give_back(self, connection: Any) -> None:
        """For whoever comes next."""
        self._resting.append((connection, time.monotonic()))
        self._places.release()

    def close(self) -> None:
        """Close them all; whoever works on one is told so by it."""
        for connection in self._made:
            connection.disconnect()


def _good(connection: Any) -> bool:
    """Whether nothing has come: neither the end of the connection, nor an answer that nobody has read."""
    try:
        return not connection.can_read(0)
    except (redis.ConnectionError, redis.TimeoutError, OSError):
        return False
