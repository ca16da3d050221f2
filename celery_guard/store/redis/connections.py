"""The connections of one process to the server: as many as it may have, the one that was used last taken first.

The driver's own pool asks the socket, and its instruments, at every turn; that costs more than a short script does. Here a connection is
asked whether it is still good only after a rest.

An exception may come at any place (a time limit's signal, a greenlet that is killed). So nothing here holds a lock that could stay held, and a
place that was taken and not given back is free again as soon as nobody knows of it any more.
"""

from __future__ import annotations

import queue
import time
import weakref
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

import redis

from .primary import EXHAUSTED

__all__ = ["Connections", "Place"]

#: A connection that was used less long ago is taken to be good (seconds): where it is not, the call is repeated.
_FRESH = 1.0
#: Who waits for a place looks at least this often (seconds): whoever was to be woken may have been interrupted.
_LOOK_EVERY = 0.1


class Place:
    """One of the places that there are, with its connection once it had one."""

    __slots__ = ("_of", "connection", "since", "unread")

    def __init__(self, of: weakref.ref[Connections], connection: Any = None) -> None:
        self._of = of
        self.connection = connection
        #: Since when it rests.
        self.since = 0.0
        #: Whether a question was asked whose answer was not read.
        self.unread = False

    def __del__(self) -> None:
        if self.connection is not None:
            self.connection.disconnect()
        if (of := self._of()) is not None:
            of.give_back(Place(self._of, self.connection))


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
        self._made: list[Any] = []
        of = weakref.ref(self)
        self._resting = [Place(of) for _ in range(most)]
        #: Wakes one of those who wait.
        self._wake: queue.SimpleQueue[None] = queue.SimpleQueue()

    def take(self) -> Place:
        """A place with a connection, for the caller alone. Raises the driver's ``ConnectionError`` where none is to be had."""
        try:
            place = self._resting.pop()
        except IndexError:
            place = self._waited_for()
        if place.connection is None:
            place.connection = self._kind(**self._options)
            self._made.append(place.connection)
        elif place.unread or (time.monotonic() - place.since > _FRESH and not _good(place.connection)):
            # it connects anew when it is used
            place.connection.disconnect()
            place.unread = False
        return place

    def _waited_for(self) -> Place:
        until = time.monotonic() + self._timeout
        while True:
            left = until - time.monotonic()
            with suppress(queue.Empty):
                self._wake.get(timeout=max(0.0, min(left, _LOOK_EVERY)))
            try:
                place = self._resting.pop()
            except IndexError:
                if left <= 0:
                    raise redis.ConnectionError(EXHAUSTED) from None
                continue
            if self._resting:
                self._wake.put(None)
            return place

    def give_back(self, place: Place) -> None:
        """For whoever comes next."""
        place.since = time.monotonic()
        self._resting.append(place)
        if self._wake.empty():
            self._wake.put(None)

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
