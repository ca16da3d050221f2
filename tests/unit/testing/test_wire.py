"""The wire counts round trips, whatever a driver sends in one go, and carries every byte."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from threading import Thread

import pytest

from celery_guard.testing.wire import Wire, wire


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


def connected(one: Wire) -> socket.socket:
    return socket.create_connection(("127.0.0.1", int(one.url.rpartition(":")[2].strip("/"))), 10)


def test_a_severed_wire_ends_its_connections_and_takes_no_new_one() -> None:
    with (
        socket.create_server(("127.0.0.1", 0)) as door,
        wire(f"mydb://127.0.0.1:{door.getsockname()[1]}/", 1) as one,
        connected(one) as client,
    ):
        server, _ = door.accept()
        with server:
            one.sever()
            assert (client.recv(1), server.recv(1)) == (b"", b"")
            with connected(one) as late:
                assert late.recv(1) == b""
            one.restore()
            with connected(one) as next_one:
                next_one.sendall(b"x")
                door.accept()[0].close()  # of the late one
                last, _ = door.accept()
                with last:
                    assert last.recv(1) == b"x"


def test_what_is_said_on_a_wire_that_swallows_never_arrives_and_nobody_is_told() -> None:
    with (
        socket.create_server(("127.0.0.1", 0)) as door,
        wire(f"mydb://127.0.0.1:{door.getsockname()[1]}/", 1) as one,
        connected(one) as client,
    ):
        server, _ = door.accept()
        with server:
            one.swallow()
            client.sendall(b"a question")
            server.sendall(b"an answer")
            for each in (client, server):
                each.settimeout(0.2)
                with pytest.raises(TimeoutError):
                    each.recv(1)
            one.restore()
            for each in (client, server):
                each.settimeout(10)
                assert each.recv(1) == b""
