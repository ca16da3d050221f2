"""Connections over which nothing arrives any more: the machine at the other end has lost its power, or a firewall has forgotten them.

Nobody ends such a connection, and whoever waits for an answer on it waits for a quarter of an hour, or for two hours, by the defaults of
Linux. Here the kernel is asked to look sooner, and then the driver is told that the connection is gone. What is busy at the other end is not
silent: its kernel answers for it.
"""

from __future__ import annotations

import socket
from typing import Any

from sqlalchemy.engine import URL

from .borrow import borrowed

__all__ = ["notice_silence"]

#: An idle connection is asked after so many seconds, so often, so many times, whether it is still there.
_IDLE, _EVERY, _TIMES = 10, 5, 3

#: What was sent and not confirmed for so many milliseconds will not be.
_UNCONFIRMED = 30_000

#: By the names that platforms have for them; one that has no such option goes by its own defaults.
_OPTIONS = {
    "TCP_KEEPIDLE": _IDLE,
    "TCP_KEEPALIVE": _IDLE,
    "TCP_KEEPINTVL": _EVERY,
    "TCP_KEEPCNT": _TIMES,
    "TCP_USER_TIMEOUT": _UNCONFIRMED,
}


def notice_silence(connection: Any, url: URL) -> None:
    """Have the kernel give up the driver's connection when it has been silent for half a minute; what the URL says about that wins."""
    descriptor = _descriptor(connection)
    if descriptor is None or any(name.startswith(("keepalives", "tcp_user_timeout")) for name in url.query):
        return
    with borrowed(descriptor) as end:
        if end.family not in (socket.AF_INET, socket.AF_INET6):
            return
        end.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for name, value in _OPTIONS.items():
            if hasattr(socket, name):
                end.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)


def _descriptor(connection: Any) -> int | None:
    """The connection's socket; None where it has none, or the driver does not say."""
    # pymysql keeps it to itself
    for holder in (connection, getattr(connection, "_sock", None)):
        fileno = getattr(holder, "fileno", None)
        if fileno is not None:
            return int(fileno())
    return None
