"""What a broker may do to messages that wait in a queue: drop, double and reorder them. On any broker, through kombu."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Any

from celery import Celery

__all__ = ["Trouble", "trouble", "waiting"]

#: Messages that are taken out of the queue at once, at most.
_LIMIT = 200


@dataclass(frozen=True, slots=True)
class Trouble:
    """Shares of the messages that are dropped, and that are doubled."""

    dropped: float
    doubled: float


def trouble(app: Celery, queue: str, how: Trouble, draw: random.Random) -> str:
    """Take what waits out of the queue, and put it back in disorder; what was done, in words."""
    with app.connection_for_write() as connection:
        channel = connection.default_channel
        taken = list(_taken(channel, queue))
        kept = [message for message in taken if draw.random() >= how.dropped]
        doubles = [message for message in kept if draw.random() < how.doubled]
        back = [*kept, *doubles]
        draw.shuffle(back)
        producer = connection.Producer()
        for message in back:
            _put_back(producer, queue, message)
    return f"{len(taken) - len(kept)} of {len(taken)} dropped, {len(doubles)} doubled, all in another order"


def waiting(app: Celery, queue: str) -> int:
    """How many messages wait in the queue."""
    with app.connection_for_write() as connection:
        try:
            return int(connection.default_channel.queue_declare(queue, passive=True).message_count)
        except connection.channel_errors:
            # on Redis a queue that is empty is not there
            return 0


def _taken(channel: Any, queue: str) -> Any:
    for _ in range(_LIMIT):
        message = channel.basic_get(queue, no_ack=True)
        if message is None:
            return
        yield message


def _put_back(producer: Any, queue: str, message: Any) -> None:
    """As it was, byte for byte, under a delivery tag of its own."""
    kept = {
        name: message.properties[name]
        for name in ("correlation_id", "reply_to", "priority")
        if name in message.properties
    }
    producer.publish(
        message.body, routing_key=queue, exchange="", content_type=message.content_type, content_encoding=message.content_encoding,
        headers=message.headers, delivery_mode=2, **kept,
    )  # fmt: skip
