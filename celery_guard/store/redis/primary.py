"""Which server is the primary that has the store's slot, where the URL names others who know.

Sentinels are asked for it; a cluster's node says where the slot is when it is asked for something else (``MOVED``). Either is
asked again after the next error of the connection, for it may have been a failover.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from redis.exceptions import ConnectionError, MovedError, ReadOnlyError, TimeoutError
from redis.sentinel import Sentinel

from .address import Address

__all__ = ["EXHAUSTED", "Primary"]

#: What is said when every connection of the process is at work: the server is where it was.
EXHAUSTED = "No connection available."

#: Options of a connection that its sentinels are asked with too. They have users of their own.
_FOR_SENTINELS = ("socket_timeout", "socket_connect_timeout")


class Primary:
    """Where to connect to, for one process."""

    def __init__(self, address: Address) -> None:
        self._address = address
        self._turn = 0
        self._moved: tuple[str, int] | None = None

    def place(self) -> Mapping[str, Any]:
        """Options of a connection that leads there; nothing where the URL says it all. Raises the driver's ``ConnectionError``."""
        if self._address.kind == "server":
            return {}
        host, port = self._found_by_sentinels() if self._address.kind == "sentinel" else self._node()
        return {"host": host, "port": port}

    def after(self, error: BaseException) -> bool:
        """Whether it has to be looked for again after an error."""
        if self._address.kind == "server":
            return False
        if isinstance(error, MovedError):
            self._moved = error.host, int(error.port)
            return True
        if not isinstance(error, (ConnectionError, TimeoutError, ReadOnlyError)) or str(error) == EXHAUSTED:
            return False
        self._moved = None
        self._turn += 1
        return True

    def _node(self) -> tuple[str, int]:
        nodes = self._address.nodes
        return self._moved or nodes[self._turn % len(nodes)]

    def _found_by_sentinels(self) -> tuple[str, int]:
        options = {name: self._address.options[name] for name in _FOR_SENTINELS}
        sentinel: Any = Sentinel(list(self._address.nodes), **options)  # type: ignore[no-untyped-call]
        try:
            host, port = sentinel.discover_master(self._address.service)
        finally:
            for asked in sentinel.sentinels:
                asked.close()
        return host, int(port)
