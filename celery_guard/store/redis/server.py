"""The server of a store, as one process sees it: its connections, and the one way to run a script on it.

A script is called by its digest, and by its text where the server does not know it (yet, or any more): no other command
prepares it, so a call is one round trip. It is repeated on errors that pass by themselves (:mod:`.transient`).

The driver's own repetitions are off. A connection on which a question was asked and no answer read is closed, whatever
interrupted it: the next caller would be given the answer.

Nothing is inherited across a fork: the first use in another process leaves every connection to the process that made it.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Sequence
from typing import Any

import redis
from redis.backoff import NoBackoff
from redis.exceptions import MovedError, NoScriptError, ResponseError
from redis.retry import Retry

from celery_guard.store.patience import Patience

from .address import Address
from .connections import Connections
from .primary import Primary
from .scripts import script
from .transient import explained, is_transient
from .version import VERSION

__all__ = ["Server"]

_DRIVER = tuple(map(int, redis.__version__.split(".")[:2]))

#: Before 5.0 it spoke the one protocol that scripts are answered in here, and had no word for it.
_PROTOCOL = {"protocol": 2} if _DRIVER >= (5, 0) else {}


class Server:
    """Opens nothing before its first use."""

    def __init__(
        self, address: Address, shown: str, *, pool_size: int, pool_timeout: float, patience: Patience
    ) -> None:
        self.tag = address.tag
        self.shown = shown
        self.patience = patience
        self._address = address
        self._primary = Primary(address)
        self._most, self._timeout = pool_size, pool_timeout
        self._pid = os.getpid()
        self._connections: Connections | None = None
        # Kept, so that they are never collected: closing them here would end the parent's sessions.
        self._inherited: list[object] = []

    def run(
        self, name: str, given: dict[str, Any], *parts: bytes, patience: Patience | None = None, versioned: bool = True
    ) -> Any:
        """Run the script ``name``; ``given`` is what it is told, and ``parts`` are what is bytes. A repetition is told that it is one (``again``).

        Raises:
            StoreUnavailableError: the server could not be reached, or refused, for longer than the patience.
            StoreSchemaError: the store is missing, or of another version.
        """
        if versioned:
            given = {**given, "version": str(VERSION)}

        def call(again: bool) -> Any:
            said = {**given, "again": True} if again else given
            words = json.dumps(said, ensure_ascii=False, separators=(",", ":")).encode()
            return self._call(name, [words, *parts])

        return self._repeated(call, patience or self.patience)

    def ask(self, *command: Any) -> Any:
        """The answer to a plain command; what the server refuses is raised as ``redis.exceptions.ResponseError``."""
        return self._repeated(lambda again: self._ask(command), self.patience, refused=True)

    def _call(self, name: str, args: Sequence[bytes]) -> Any:
        found = script(name)
        try:
            return self._ask(("EVALSHA", found.digest, 1, self.tag, *args))
        except NoScriptError:
            return self._ask(("EVAL", found.text, 1, self.tag, *args))

    def _repeated(self, work: Callable[[bool], Any], patience: Patience, *, refused: bool = False) -> Any:
        def said(error: Exception) -> BaseException:
            return error if refused and isinstance(error, ResponseError) else explained(error, self.shown)

        return patience.run(work, self._passes, said)

    def _passes(self, error: BaseException) -> bool:
        if self._primary.after(error):
            self._connections = None
        if isinstance(error, MovedError) and self._address.kind == "server":
            return False
        return is_transient(error)

    def _ask(self, command: Sequence[Any]) -> Any:
        connections = self.connections
        place = connections.take()
        connection = place.connection
        try:
            place.unread = True
            connection.send_command(*command)
            answer = connection.read_response()
            place.unread = False
            return answer
        except redis.exceptions.ReadOnlyError:
            # It was the primary once; the name may lead to another by now.
            connection.disconnect()
            raise
        except ResponseError:
            place.unread = False
            raise
        except BaseException:
            connection.disconnect()
            raise
        finally:
            connections.give_back(place)

    # -- connections --------------------------------------------------------------------------------------------------

    @property
    def connections(self) -> Connections:
        """The connections of this process; never used for anything that belongs to the caller."""
        if os.getpid() != self._pid:
            self.forget()
        if self._connections is None:
            self._connections = self._open()
        return self._connections

    def _open(self) -> Connections:
        options = {
            "retry": Retry(NoBackoff(), 0), **_PROTOCOL, **self._address.options, **self._primary.place(),
        }  # fmt: skip
        if "path" not in options:
            options.setdefault("socket_keepalive", True)
        return Connections(options, most=self._most, timeout=self._timeout)

    def forget(self) -> None:
        """Leave every open connection to the process that made it."""
        self._pid = os.getpid()
        self._inherited.append(self._connections)
        self._connections = None

    def close(self) -> None:
        """Close the connections of this process."""
        if os.getpid() != self._pid:
            self.forget()
        connections, self._connections = self._connections, None
        if connections is not None:
            connections.close()
