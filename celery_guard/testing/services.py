"""The servers that tests run against: where each is, whether it answers, and what happens when it does not.

Each has a default on the loopback and a variable that says otherwise (``GUARD_TEST_POSTGRESQL=postgresql+psycopg://...``).
A test that needs a server which does not answer is skipped, with the server's name; where ``CI`` is ``true`` it fails,
so that nothing is left out in silence.
"""

from __future__ import annotations

import os
import socket
from dataclasses import dataclass
from functools import cache
from urllib.parse import urlsplit

import pytest

__all__ = ["MARIADB", "POSTGRESQL", "RABBITMQ", "REDIS", "SERVERS", "Server"]

#: How long a server may take to answer the one probe, in seconds.
_PATIENCE = 2.0


@dataclass(frozen=True, slots=True)
class Server:
    """One kind of server."""

    name: str
    default: str
    port: int

    @property
    def variable(self) -> str:
        """The environment variable that says where the server is."""
        return f"GUARD_TEST_{self.name.upper()}"

    @property
    def url(self) -> str:
        return os.environ.get(self.variable) or self.default

    @property
    def address(self) -> tuple[str, int]:
        parts = urlsplit(self.url)
        return parts.hostname or "127.0.0.1", parts.port or self.port

    @property
    def answers(self) -> bool:
        """Whether somebody listens at the address; asked once a run."""
        return _answers(*self.address)

    def need(self) -> str:
        """The URL, for a test that cannot do without; skips, or fails in CI, where the server does not answer."""
        if self.answers:
            return self.url
        host, port = self.address
        missing = f"needs {self.name}, and none answers at {host}:{port} (set {self.variable} to say where one is)"
        if os.environ.get("CI", "").lower() in ("1", "true"):
            pytest.fail(missing, pytrace=False)
        pytest.skip(missing)


@cache
def _answers(host: str, port: int) -> bool:
    try:
        socket.create_connection((host, port), timeout=_PATIENCE).close()
    except OSError:
        return False
    return True


POSTGRESQL = Server("postgresql", "postgresql+psycopg://root@127.0.0.1/test", 5432)
MARIADB = Server("mariadb", "mysql+pymysql://root@127.0.0.1/test", 3306)
REDIS = Server("redis", "redis://127.0.0.1:6379/", 6379)
RABBITMQ = Server("rabbitmq", "amqp://guest:guest@127.0.0.1:5672//", 5672)

SERVERS = (POSTGRESQL, MARIADB, REDIS, RABBITMQ)
