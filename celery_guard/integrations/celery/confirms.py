"""RabbitMQ's publisher confirms, awaited once for a whole batch.

py-amqp's own ``confirm_publish`` waits for each message. Here the channel is put in confirm mode, messages are published without
waiting, and the broker's acks are counted. A mandatory message that no queue takes is returned before it is confirmed, so it is
known to be refused by the time its ack arrives.

Messages are written to the socket many at a time: py-amqp's own writing of each is a system call a message, a fifth of a relay's CPU.
"""

from __future__ import annotations

import itertools
import time
from typing import Any

from kombu.exceptions import OperationalError

from celery_guard.flow.relay import Published

__all__ = ["Confirms"]


#: Bytes that are written to the socket at once.
_AT_ONCE = 64 * 1024


class _Writes:
    """The frames of messages, on their way to the socket. What a connection that is given up had not written is dropped with it."""

    def __init__(self, channel: Any) -> None:
        self._channel = channel
        self._frames = bytearray()

    def publish(self, *args: Any, **options: Any) -> Any:
        """As the channel's. All else that the channel sends, and waits for, goes to the socket itself, as ever."""
        transport = self._channel.connection.transport
        write, transport._write = transport._write, self._frames.extend
        try:
            answer = self._channel._basic_publish(*args, **options)
        finally:
            transport._write = write
        if len(self._frames) >= _AT_ONCE:
            self.flush()
        return answer

    def flush(self) -> None:
        """Write what is there."""
        frames, self._frames = self._frames, bytearray()
        if frames:
            self._channel.connection.transport.write(frames)


class Confirms:
    """One batch on one channel."""

    def __init__(self, channel: Any) -> None:
        self._channel = channel
        if not hasattr(channel, "guard_tags"):
            channel.confirm_select()
            # what the batch needs is the plain publish; waiting is done here
            channel.guard_writes = _Writes(channel)
            channel.basic_publish = channel.guard_writes.publish
            channel.guard_tags = itertools.count(1)
        self._waiting: dict[int, str] = {}
        self._confirmed: list[str] = []
        self._refused: list[tuple[str, Exception]] = []
        self._returned: dict[str, Exception] = {}
        channel.events["basic_ack"] = {self._acked}
        channel.events["basic_nack"] = {self._nacked}
        channel.events["basic_return"] = {self._came_back}

    def expect(self, id: str) -> None:
        """The next message that is published on the channel is this job's."""
        self._waiting[next(self._channel.guard_tags)] = id

    def wait(self, within: float) -> Published:
        """Until every message is confirmed or refused. Raises ``OperationalError`` after ``within`` seconds."""
        until = time.monotonic() + within
        self._channel.guard_writes.flush()
        while self._waiting:
            left = until - time.monotonic()
            if left <= 0:
                raise OperationalError(f"the broker did not confirm {len(self._waiting)} messages within {within:g} s")
            self._channel.connection.drain_events(timeout=left)
        return self.so_far()

    def so_far(self) -> Published:
        """Those that the broker has spoken about."""
        return Published(tuple(self._confirmed), tuple(self._refused))

    def _acked(self, delivery_tag: int, multiple: bool) -> None:
        for id in self._ended(delivery_tag, multiple):
            returned = self._returned.pop(id, None)
            if returned is None:
                self._confirmed.append(id)
            else:
                self._refused.append((id, returned))

    def _nacked(self, delivery_tag: int, multiple: bool) -> None:
        for id in self._ended(delivery_tag, multiple):
            self._refused.append((id, OperationalError("the broker refused the message (nack)")))

    def _came_back(self, error: Exception, exchange: str, routing_key: str, message: Any) -> None:
        self._returned[message.properties["application_headers"]["id"]] = error

    def _ended(self, tag: int, multiple: bool) -> list[str]:
        tags = [known for known in self._waiting if known <= tag] if multiple else [tag] if tag in self._waiting else []
        return [self._waiting.pop(known) for known in tags]
