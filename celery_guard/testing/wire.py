"""A wire between a client and its server that counts round trips, and can be cut at any of them.

It stands in the way as a TCP proxy, so it sees what any driver really sends, commits and prepared statements included.
A round trip is one change of direction: the client has said something, and the server has answered. A cut loses either the
question, so that the server never hears it, or the answer, so that the client does not know what has happened.

It can also be broken as a whole: ``sever`` ends every connection and takes no new one; ``swallow`` leaves them open, and nothing that is said on them
arrives, as behind a firewall that has forgotten them. ``restore`` ends what was broken, and lets new connections through.
"""

from __future__ import annotations

import selectors
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from threading import Lock, Thread
from urllib.parse import urlsplit, urlunsplit

__all__ = ["Wire", "wire"]


class Wire:
    """A proxy in front of one server. ``url`` leads through it."""

    def __init__(self, url: str, default_port: int) -> None:
        parts = urlsplit(url)
        self._server = (parts.hostname or "127.0.0.1", parts.port or default_port)
        self._door = socket.create_server(("127.0.0.1", 0))
        user = parts.netloc.rpartition("@")[0]
        here = f"127.0.0.1:{self._door.getsockname()[1]}"
        self.url = urlunsplit(parts._replace(netloc=f"{user}@{here}" if user else here))
        self._lock = Lock()
        self._count = 0
        self._cut_at: int | None = None
        self._cut_answers = False
        self._then: Callable[[], object] = lambda: None
        self._severed = False
        self._swallows = False
        self._open: list[socket.socket] = []
        self._threads: list[Thread] = []
        self._spawn(self._listen)

    @property
    def round_trips(self) -> int:
        """How many there were so far."""
        with self._lock:
            return self._count

    def cut(self, at: int, *, answers: bool, then: Callable[[], object] = lambda: None) -> None:
        """Cut the connection that makes the ``at``-th round trip from now: its question, or its answer, is lost.

        ``then`` happens when the server sees the end of the connection, and before the client does.
        """
        with self._lock:
            self._then = then
            self._cut_at = self._count + at
            self._cut_answers = answers

    def mend(self) -> bool:
        """Let everything through again; whether the cut has not been made."""
        with self._lock:
            waiting, self._cut_at = self._cut_at is not None, None
            return waiting

    def sever(self) -> None:
        """End every connection; whoever connects is hung up on, until :meth:`restore`."""
        with self._lock:
            self._severed = True
        self._end_all()

    def swallow(self) -> None:
        """Keep every connection open, take new ones, and let nothing through either way, until :meth:`restore`."""
        with self._lock:
            self._swallows = True

    def restore(self) -> None:
        """Let new connections through; those that have missed something are ended."""
        with self._lock:
            was_broken, self._severed, self._swallows = self._severed or self._swallows, False, False
        if was_broken:
            self._end_all()

    def close(self) -> None:
        with suppress(OSError):
            self._door.shutdown(socket.SHUT_RDWR)
        self._door.close()
        self._end_all()
        for thread in self._threads:
            thread.join(5)

    def _end_all(self) -> None:
        """Whoever carries a connection sees its end, and closes it."""
        with self._lock:
            open_sockets, self._open = self._open, []
        for each in open_sockets:
            with suppress(OSError):  # the other side was faster
                each.shutdown(socket.SHUT_RDWR)

    def _spawn(self, target: object, *given: object) -> None:
        thread = Thread(target=target, args=given, daemon=True)  # type: ignore[arg-type]
        self._threads.append(thread)
        thread.start()

    def _listen(self) -> None:
        while True:
            try:
                client, _ = self._door.accept()
            except OSError:
                return  # closed
            try:
                server = socket.create_connection(self._server)
            except OSError:
                client.close()
                continue
            for each in (client, server):
                each.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            with self._lock:
                severed = self._severed
                if not severed:
                    self._open += [client, server]
            if severed:
                client.close()
                server.close()
                continue
            self._spawn(self._carry, client, server)

    def _carry(self, client: socket.socket, server: socket.socket) -> None:
        """Carry bytes both ways until one side ends."""
        with selectors.DefaultSelector() as selector:
            selector.register(client, selectors.EVENT_READ, server)
            selector.register(server, selectors.EVENT_READ, client)
            client_spoke = False
            while True:
                for key, _ in selector.select():
                    source, target = key.fileobj, key.data
                    assert isinstance(source, socket.socket)
                    try:
                        chunk = source.recv(1 << 16)
                        if chunk and self._swallows:
                            continue
                        answers = source is server and client_spoke
                        asks = source is client and not client_spoke
                        client_spoke = source is client
                        if self._is_cut(answers=answers, asks=asks):
                            chunk = b""
                            server.close()
                            self._then()
                        target.sendall(chunk)
                    except OSError:
                        chunk = b""
                    if not chunk:
                        client.close()
                        server.close()
                        return

    def _is_cut(self, *, answers: bool, asks: bool) -> bool:
        """Count an answer; whether the cut is here."""
        with self._lock:
            self._count += answers
            here = self._count if answers else self._count + 1
            if self._cut_at is None or not (answers if self._cut_answers else asks) or here < self._cut_at:
                return False
            self._cut_at = None
            return True


@contextmanager
def wire(url: str, default_port: int) -> Iterator[Wire]:
    """A wire for as long as the block."""
    one = Wire(url, default_port)
    try:
        yield one
    finally:
        one.close()
