"""What a batch writes to the socket, and when: on py-amqp's own channel, over a transport that keeps it."""

from __future__ import annotations

from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import pytest
from amqp import Channel, spec
from amqp.basic_message import Message
from amqp.method_framing import frame_writer

from celery_guard.integrations.celery.confirms import Confirms


class Transport:
    def __init__(self) -> None:
        self.written: list[bytes] = []

    def having_timeout(self, timeout: float | None) -> Any:
        return nullcontext()

    def write(self, data: Any) -> None:
        self._write(data)

    def _write(self, data: Any) -> None:
        self.written.append(bytes(data))


class Open(Channel):  # type: ignore[misc]
    """A channel of a connection that nobody is at the other end of."""

    def __init__(self, transport: Transport) -> None:
        connection: Any = SimpleNamespace(
            frame_max=131072, transport=transport, client_properties={}, channels={}, bytes_sent=0
        )
        connection.frame_writer = frame_writer(connection, transport)
        self.connection, self.channel_id, self.is_closing = connection, 1, False
        self.events: dict[str, Any] = {}
        self.auto_encode_decode, self._confirm_selected = False, False

    def confirm_select(self, nowait: bool = False) -> None: ...


@pytest.fixture
def transport() -> Transport:
    return Transport()


@pytest.fixture
def channel(transport: Transport) -> Any:
    return Open(transport)


def answer(channel: Any, *tags: int) -> None:
    """The broker confirms these when it is waited for."""
    acks = iter(tags)

    def drain_events(timeout: float) -> None:
        for acked in channel.events["basic_ack"]:
            acked(next(acks), False)

    channel.connection.drain_events = drain_events


def publish(channel: Any, confirms: Confirms, id: str, size: int = 100) -> None:
    confirms.expect(id)
    channel.basic_publish(Message(b"x" * size, application_headers={"id": id}), routing_key="q", mandatory=True)


def test_a_batch_is_written_at_once_and_before_it_is_waited_for(channel: Any, transport: Transport) -> None:
    confirms = Confirms(channel)
    answer(channel, 1, 2, 3)
    for id in "abc":
        publish(channel, confirms, id)
    assert transport.written == []
    assert confirms.wait(5).sent == ("a", "b", "c")
    [written] = transport.written
    plain = Transport()
    one_by_one = Open(plain)
    for id in "abc":
        one_by_one.basic_publish(Message(b"x" * 100, application_headers={"id": id}), routing_key="q", mandatory=True)
    assert written == b"".join(plain.written)


def test_a_large_batch_is_written_on_the_way(channel: Any, transport: Transport) -> None:
    confirms = Confirms(channel)
    for number in range(3):
        publish(channel, confirms, str(number), size=40_000)
    assert len(transport.written) == 1
    publish(channel, confirms, "over a frame", size=200_000)
    assert len(transport.written) == 2


def test_what_is_no_message_is_written_as_ever(channel: Any, transport: Transport) -> None:
    confirms = Confirms(channel)
    publish(channel, confirms, "a")
    channel.send_method(spec.Queue.Declare, "BsbbbbbF", (0, "q", False, True, False, False, True, {}))
    assert len(transport.written) == 1
    assert b"x" * 100 not in transport.written[0]


def test_after_a_message_that_cannot_be_written_the_socket_is_written_to_as_ever(
    channel: Any, transport: Transport
) -> None:
    confirms = Confirms(channel)
    publish(channel, confirms, "a")
    with pytest.raises(Exception, match="object"):
        channel.basic_publish(Message(b"", application_headers={"id": object()}), routing_key="q")
    transport.write(b"goodbye")
    assert transport.written == [b"goodbye"]
