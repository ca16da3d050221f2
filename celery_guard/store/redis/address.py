"""Where the store is: the URL as people write it, read once.

``redis://host:port/db?name=shop``; ``rediss://`` with TLS; ``unix:///path?db=1``; ``redis+sentinel://host:port,host:port/db?service=main``;
``redis+cluster://host:port,host:port``. ``name`` tells stores on one server apart, by default ``main``. The rest of the query are
options of the connection.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import parse_qsl, unquote, urlencode, urlsplit

from redis.connection import parse_url

from celery_guard.errors import SettingError

__all__ = ["Address", "address"]

_NAME = re.compile(r"[A-Za-z0-9_.-]{1,64}")

#: What may be said in the query beside ``name``, ``service`` and ``db``, all of it about the connection.
_OPTIONS = {
    "socket_timeout", "socket_connect_timeout", "socket_keepalive", "health_check_interval", "client_name", "username", "password",
    "ssl_ca_certs", "ssl_ca_path", "ssl_certfile", "ssl_keyfile", "ssl_cert_reqs", "ssl_check_hostname", "ssl_min_version",
}  # fmt: skip

#: Seconds. A server that does not answer within them is given up on, and asked again by another connection.
_TIMEOUTS = {"socket_timeout": 10.0, "socket_connect_timeout": 5.0}


@dataclass(frozen=True, slots=True)
class Address:
    """One store: which servers, how to connect, and the tag of its keys."""

    #: ``server``, ``sentinel`` or ``cluster``.
    kind: str
    #: The tag that all keys begin with, and the only part of them that Redis Cluster hashes.
    tag: str
    #: Options of one connection.
    options: Mapping[str, Any]
    #: For sentinels and clusters: where to ask.
    nodes: tuple[tuple[str, int], ...] = ()
    #: For sentinels: what the primary is called.
    service: str = ""


def address(url: str) -> Address:
    """The address that a URL names.

    Raises:
        SettingError: it names none.
    """
    scheme, _, kind = urlsplit(url).scheme.partition("+")
    if kind not in ("", "sentinel", "cluster"):
        raise SettingError(f"Setting store: there is no {kind!r} of Redis. Use redis+sentinel:// or redis+cluster://.")
    said = dict(parse_qsl(urlsplit(url).query, keep_blank_values=True))
    name, service = said.pop("name", "main"), said.pop("service", "")
    if not _NAME.fullmatch(name):
        raise SettingError(
            f"Setting store: the name {name!r} of a Redis store has to be letters, digits, '_', '.' and '-', 64 at most."
        )
    allowed = _OPTIONS | ({"db"} if kind != "cluster" else set())
    if unknown := sorted({*said} - allowed):
        raise SettingError(
            f"Setting store: a Redis store has no option {unknown[0]!r}. It has name, {', '.join(sorted(allowed))}."
        )
    parts = urlsplit(url)
    nodes = _nodes(parts.netloc, 26379 if kind == "sentinel" else 6379) if kind else ()
    if kind == "sentinel" and not service:
        raise SettingError(
            "Setting store: redis+sentinel:// needs ?service=, the name that the sentinels know the primary by."
        )
    if kind == "cluster" and parts.path.strip("/") not in ("", "0"):
        raise SettingError("Setting store: a Redis cluster has no numbered databases. Leave the path of the URL out.")
    netloc = parts.netloc.partition(",")[0] if kind else parts.netloc
    plain = f"{scheme}://{netloc}{parts.path}?{urlencode(said)}"
    try:
        options = parse_url(plain)  # type: ignore[no-untyped-call]
    except ValueError as error:
        raise SettingError(f"Setting store: this is no URL of a Redis server ({error}).") from error
    return Address(kind or "server", f"{{guard:{name}}}", {**_TIMEOUTS, **options}, nodes, service)


def _nodes(netloc: str, port: int) -> tuple[tuple[str, int], ...]:
    found = []
    for each in netloc.rpartition("@")[2].split(","):
        one = urlsplit(f"//{each}")
        try:
            found.append((unquote(one.hostname or "localhost"), one.port or port))
        except ValueError as error:
            raise SettingError(f"Setting store: {each!r} is no host and port.") from error
    return tuple(found)
