"""The wire counts round trips, whatever a driver sends in one go, and carries every byte."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from threading import Thread

import pytest

from celery_guard.testing.wire import wire


@pytest.fixture
def echo() -> Iterator[int]:
    """A server that answers each line with itself; its port."""
    with socket.create_server(("127.0.0.1", 0)) as door:

        def serve() -> None:
            client, _ = door.accept()
            with client, client.makefile("rwb") as lines:
                for line in lines:
                    lines.write(line)
                    lines.flush()

        thread = Thread(target=serve, daemon=True)
        thread.start()
        yield door.getsockname()[1]
        thread.join(5)


def test_each_answer_is_one_round_trip(echo: int) -> None:
    with wire(f"mydb://user:secret@127.0.0.1:{echo}/test?a=b", 1) as one:
        head, _, rest = one.url.partition("127.0.0.1:")
        port, _, path = rest.partition("/")
        assert (head, path) == ("mydb://user:secret@", "test?a=b")
        with socket.create_connection(("127.0.0.1", int(port))) as client, client.makefile("rwb") as lines:
            for number in range(1, 4):
                sent = b"x" * 100_000 * number + b"\n"
                lines.write(sent)
                lines.flush()
                assert lines.readline() == sent
                assert one.round_trips == number


def test_what_nobody_said_is_no_round_trip() -> None:
    with socket.create_server(("127.0.0.1", 0)) as door, wire(f"mydb://127.0.0.1:{door.getsockname()[1]}/", 1) as one:
        port = int(one.url.rpartition(":")[2].strip("/"))
        with socket.create_connection(("127.0.0.1", port)) as client:
            server, _ = door.accept()
            with server:
                server.sendall(b"a greeting")
                assert client.recv(100) == b"a greeting"
                assert one.round_trips == 0
