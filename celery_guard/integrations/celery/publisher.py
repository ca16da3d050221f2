"""Sending stored messages to the broker, a batch at a time, on a connection of the relay's own.

==============  =================================================================================================
Redis           pipelined: one round trip a batch; when that fails, what went out is uncertain and the batch goes again
RabbitMQ        mandatory, with publisher confirms awaited once a batch; a message that no queue takes is refused
anything else   one by one
==============  =================================================================================================
"""

from __future__ import annotations

import json
import logging
import os
import sys
from collections.abc import Iterable, Iterator, Sequence, Set
from contextlib import nullcontext
from dataclasses import replace
from typing import Any

from amqp.exceptions import FrameError, FrameSyntaxError, UnexpectedFrame
from celery import Celery, states
from celery.app.task import Context
from kombu import Connection, Exchange, Producer
from kombu.exceptions import OperationalError
from kombu.transport import virtual

from celery_guard.errors import EncryptionKeyError, JobFailed
from celery_guard.flow.relay import Published
from celery_guard.job.encryption import NO_ENCRYPTION, Encryption
from celery_guard.job.row import Outgoing, StoredPayload
from celery_guard.job.state import Reason

from .capture import DELIVERY, decode
from .confirms import Confirms
from .pipeline import Pipeline, server_is_out
from .sent import SentEvents
from .templates import tag_at_little_cost, templates_for

__all__ = ["BrokerPublisher"]

logger = logging.getLogger("celery_guard.relay")

#: How long a batch may wait for the broker's confirms before it counts as not sent (seconds).
_CONFIRM_WITHIN = 30.0

#: How long the broker may say nothing before it counts as away (seconds), where the app's own transport options do not say.
_SILENCE: dict[str, dict[str, float]] = {
    "redis": {"socket_timeout": 30.0, "socket_connect_timeout": 5.0},
    "amqp": {"read_timeout": 30.0, "write_timeout": 30.0},
}

_DELIVERY = frozenset(DELIVERY)

#: RabbitMQ closes the connection over such a message (headers larger than a frame), and is there for the next one.
_MISFRAMED = (FrameError, FrameSyntaxError, UnexpectedFrame)


class BrokerPublisher:
    """Publishes for one relay. Not for sharing between threads."""

    def __init__(self, app: Celery, encryption: Encryption = NO_ENCRYPTION) -> None:
        self._app = app
        self._encryption = encryption
        self._pid = 0
        self._connection: Connection | None = None
        self._channel: Any = None
        #: The queues that were published to, bound to the channel: kombu would copy and bind one for each message.
        self._queues: dict[str, Any] = {}
        self._events = SentEvents(app)

    def publish(self, rows: Sequence[Outgoing]) -> Published:
        """See :class:`~celery_guard.flow.relay.Publisher`."""
        if not rows:
            return Published()
        try:
            channel = self._open()
        except Exception as error:  # noqa: BLE001 - every transport has its own; whatever it is, nothing was sent
            self.close()
            return Published(outage=error)
        published = (self._confirmed if isinstance(channel, _amqp_channel()) else self._in_turn)(channel, rows)
        self._events.announce(self._connection, rows, frozenset(published.sent))
        return published

    def depth(self, queue: str) -> int | None:
        """See :class:`~celery_guard.flow.relay.Publisher`."""
        try:
            channel = self._open()
            if isinstance(channel, virtual.Channel):
                # its passive declare asks Redis for the key without global_keyprefix, and calls a queue that is there missing
                return int(channel._size(queue))
            return int(channel.queue_declare(queue=queue, passive=True).message_count)
        except Exception as error:
            out = self._is_out(error)
            self.close()
            if out:
                raise ConnectionError(str(error)) from error
            # no such queue, or no such question: it does not say
            logger.debug("the depth of %s is not known: %s", queue, error)
            return None

    def tell(self, row: Outgoing, error: Exception) -> bool:
        """See :class:`~celery_guard.flow.relay.Publisher`. Celery's own backend does it all: result, chord part, errbacks."""
        try:
            request = _request_of(row, self._encryption)
            self._app.backend.mark_as_failure(row.id, error, request=request, state=states.FAILURE)
        except Exception as trouble:  # noqa: BLE001 - whatever ails the backend; it is told again later
            logger.error("Celery could not be told that job %s is dead: %s", row.id, trouble)
            return False
        return True

    def close(self) -> None:
        """Drop the connection; the next call opens another."""
        connection, self._connection, self._channel = self._connection, None, None
        self._queues = {}
        if connection is not None and self._pid == os.getpid():
            try:
                connection.release()
            except Exception as error:  # noqa: BLE001 - closing a broken connection may fail in any way; it is gone
                logger.debug("closing the broker connection: %s", error)

    def _open(self) -> Any:
        if self._pid != os.getpid():
            self._connection = self._channel = None
            self._queues = {}
            self._pid = os.getpid()
        if self._connection is None:
            self._connection = self._app.connection_for_write()
            silence = _SILENCE.get(self._connection.transport.driver_type, {})
            self._connection.transport_options = {**silence, **(self._connection.transport_options or {})}
            # the relay itself waits and tries again, and must be able to stop meanwhile
            self._connection.ensure_connection(
                max_retries=1, interval_start=0, timeout=5, reraise_as_library_errors=False
            )
            self._channel = self._connection.channel()
            tag_at_little_cost(self._channel)
        return self._channel

    def _is_out(self, error: BaseException) -> bool:
        """Whether the broker is away, or takes nothing from anybody; if not, it has something against this very message."""
        # kombu calls both by this name
        cause = error.__cause__ if isinstance(error, OperationalError) and error.__cause__ is not None else error
        if server_is_out(cause):
            return True
        known = () if self._connection is None else self._connection.connection_errors
        # KeyError is among Redis's connection errors, and here it is a queue that the app's configuration does not know
        return isinstance(cause, (OperationalError, ConnectionError, TimeoutError, *known)) and not isinstance(
            cause, (KeyError, *_MISFRAMED)
        )

    def _in_turn(self, channel: Any, rows: Sequence[Outgoing]) -> Published:
        sent: list[str] = []
        refused: list[tuple[str, Exception]] = []
        producer = Producer(channel, auto_declare=False)
        try:
            with producer.batch(max_size=sys.maxsize) if hasattr(producer, "batch") else nullcontext() as batch:
                pipeline = None if batch is None else Pipeline(batch, templates_for(channel, len(rows)))
                for row in rows:
                    if pipeline is not None and pipeline.fill(row):
                        continue
                    try:
                        self._send(producer, row)
                    except Exception as error:
                        if self._is_out(error):
                            raise
                        refused.append((row.id, error))
                    else:
                        if pipeline is None or not pipeline.filled(row):
                            sent.append(row.id)
                answered = Published() if pipeline is None else pipeline.execute()
        except Exception as error:  # noqa: BLE001 - no row is at fault; whatever is in the pipeline is not known to be sent
            self.close()
            return Published(tuple(sent), tuple(refused), error)
        # most batches are in the pipeline as a whole
        return _joined([Published(tuple(sent), tuple(refused)), answered]) if sent or refused else answered

    def _confirmed(self, channel: Any, rows: Sequence[Outgoing]) -> Published:
        """A message that cannot be written, or for which the broker hangs up, takes the others along: then each goes alone."""
        confirms = Confirms(channel)
        producer = Producer(channel, auto_declare=False)
        try:
            for row in rows:
                confirms.expect(row.id)
                self._send(producer, row, mandatory=True)
            return confirms.wait(_CONFIRM_WITHIN)
        except Exception as error:  # noqa: BLE001 - the broker's words, the socket's, and what cannot be written as a frame
            trouble = error
        out = self._is_out(trouble)
        self.close()
        known = confirms.so_far()
        spoken = {*known.sent, *(id for id, _ in known.refused)}
        rest = [row for row in rows if row.id not in spoken]
        if len(rows) > 1:
            return _joined([known, *self._one_by_one(rest)])
        if out or not rest:
            return replace(known, outage=trouble)
        return Published(refused=((rest[0].id, trouble),))

    def _one_by_one(self, rows: Sequence[Outgoing]) -> Iterator[Published]:
        for row in rows:
            published = self.publish([row])
            yield published
            if published.outage is not None:
                return

    def _bound(self, name: str) -> Any:
        queue = self._queues.get(name)
        if queue is None:
            try:
                known = self._app.amqp.queues[name]
            except KeyError:
                raise LookupError(
                    f"The queue {name!r} is not in this relay's task_queues, and task_create_missing_queues is off. To repair: name it there, "
                    "or start a relay of the app that has it."
                ) from None
            queue = self._queues[name] = known.bind(self._channel)
        return queue

    def _send(self, producer: Producer, row: Outgoing, **options: Any) -> None:
        payload = _payload_of(row)
        delivery = _read(row, "delivery", payload.delivery, _DELIVERY)
        headers = {**_read(row, "headers", payload.headers), "retries": row.retries}
        declare = [self._bound(delivery["queue"])] if delivery["declare"] else []
        exchange = delivery["exchange"]
        producer.publish(
            payload.body,
            exchange=Exchange(exchange, type=delivery["exchange_type"]) if exchange else "",
            routing_key=delivery["routing_key"],
            priority=delivery["priority"],
            content_type=delivery["content_type"],
            content_encoding=delivery["content_encoding"],
            headers=headers,
            declare=declare,
            **delivery["properties"],
            **options,
        )


def _read(row: Outgoing, what: str, text: str, expected: Set[str] = frozenset()) -> dict[str, Any]:
    """A part of the stored message. Raises ``JobFailed`` where it is not as it was written: it will not be on another try."""
    try:
        found = json.loads(text)
    except ValueError as error:
        found, wrong = None, f"found no JSON ({error})"
    else:
        wrong = f"found a value of type {type(found).__name__}"
    if isinstance(found, dict):
        if found.keys() >= expected:
            return found
        wrong = f"found no {', '.join(sorted(expected - found.keys()))}"
    raise JobFailed(
        f"The stored message of job {row.id} (generation {row.generation}) cannot be published: the {what} with it was damaged, by hand or in the store: "
        f"{wrong}, expected what was written when it was accepted. Make the call again, under a new id, and resolve this letter.",
        reason=Reason.UNPUBLISHABLE.value,
    )


def _payload_of(row: Outgoing) -> StoredPayload:
    if row.payload is None:
        raise LookupError(f"the message of job {row.id} is gone from the store")
    return row.payload


def _request_of(row: Outgoing, encryption: Encryption) -> Context | None:
    """What Celery's backend goes by; None where the message is gone or cannot be read: then the result is all that can be told.

    Raises ``EncryptionKeyError``: another relay has the key, and will tell.
    """
    try:
        payload = encryption.decrypt_message(row.id, _payload_of(row))
        headers = json.loads(payload.headers)
        args, kwargs, embed = decode(payload.body, json.loads(payload.delivery), headers)
        return Context({**headers, "args": args, "kwargs": kwargs, **(embed or {})})
    except EncryptionKeyError:
        raise
    except Exception as error:  # noqa: BLE001 - what was stored may be damaged in any way
        logger.error("job %s: what hangs on it cannot be told, for its message cannot be read: %s", row.id, error)
        return None


def _amqp_channel() -> type[Any]:
    from kombu.transport.pyamqp import Channel

    kind: type[Any] = Channel
    return kind


def _joined(given: Iterable[Published]) -> Published:
    parts = list(given)
    sent = tuple(id for part in parts for id in part.sent)
    refused = tuple(pair for part in parts for pair in part.refused)
    return Published(sent, refused, next((part.outage for part in parts if part.outage is not None), None))
