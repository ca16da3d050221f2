"""Serving metrics over HTTP. The port is taken when the server is made, so that one that is taken already is an error at once."""

from __future__ import annotations

import logging
import socketserver
from typing import Any
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server

from prometheus_client import CollectorRegistry, make_wsgi_app

from celery_guard.errors import PortError

__all__ = ["MetricsServer", "address_of"]

logger = logging.getLogger("celery_guard.watch")


class _Server(socketserver.ThreadingMixIn, WSGIServer):
    """One thread a scrape."""

    daemon_threads = True


class _Quiet(WSGIRequestHandler):
    """Scrapes are not logged."""

    def log_message(self, format: str, *args: Any) -> None:
        logger.debug(format, *args)


class MetricsServer:
    """Answers ``/metrics``, from the moment of :meth:`serve`.

    Raises:
        PortError: the address cannot be bound.
    """

    def __init__(self, registry: CollectorRegistry, host: str, port: int) -> None:
        try:
            self._server = make_server(host, port, make_wsgi_app(registry), _Server, _Quiet)
        except OSError as error:
            raise PortError(
                f"Metrics cannot be served at {host}:{port}: {error.strerror or error}. To repair: free the port, or name another "
                "(`guard metrics --port`, setting metrics). Workers on one machine need a port each, or one of them serves for all."
            ) from error

    @property
    def port(self) -> int:
        """The port that is bound; where 0 was asked for, the one that was free."""
        return int(self._server.server_port)

    def serve(self) -> None:
        """Answer until :meth:`stop`."""
        self._server.serve_forever(poll_interval=0.2)

    def stop(self) -> None:
        """End :meth:`serve` and free the port."""
        self._server.shutdown()
        self._server.server_close()

    def leave(self) -> None:
        """Close the port in this process; a child that has it serves on."""
        self._server.socket.close()


def address_of(text: str) -> tuple[str, int]:
    """Host and port of ``127.0.0.1:9808``, ``[::1]:9808`` or ``9808``, which is on 127.0.0.1. Raises ``ValueError``."""
    host, _, port = text.rpartition(":")
    if not port.isdecimal() or int(port) > 65535:
        raise ValueError(f"found {text!r}, expected a port, or host:port such as 127.0.0.1:9808")
    return host.strip("[]") or "127.0.0.1", int(port)
