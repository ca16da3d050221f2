"""Letting Celery build a message without sending it.

Celery's own ``send_task`` runs against a kombu producer that keeps what it is given and opens no connection. So the
bytes, headers, routing, serializer and the ``before_``/``after_task_publish`` signals are Celery's own, and the broker may be down.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

from celery import Celery
from kombu import Exchange, Producer, Queue
from kombu.serialization import loads

from celery_guard.errors import PayloadError
from celery_guard.job.row import StoredPayload

__all__ = ["DELIVERY", "ETA", "Captured", "capture", "captures", "decode", "decode_stored", "encoded"]

#: The header in which ``request.eta`` travels: Celery's own would have a worker wait, and the store does that.
ETA = "guard_eta"

#: What the delivery of every stored message has, in the order in which it is written.
DELIVERY = (
    "exchange", "exchange_type", "routing_key", "queue", "declare", "priority", "content_type", "content_encoding", "properties",
)  # fmt: skip

PICKLE = "application/x-python-serialize"

#: Properties that the transport fills in again for each publication.
_OF_THE_TRANSPORT = frozenset({"body_encoding", "delivery_tag", "delivery_info"})


@dataclass(frozen=True, slots=True)
class Captured:
    """A message that Celery built and nobody sent."""

    body: bytes
    headers: dict[str, Any]
    delivery: dict[str, Any]
    queue: str
    result: Any

    def decoded(self) -> tuple[Any, Any]:
        """(args, kwargs) as a worker will see them."""
        args, kwargs, _embed = decode(self.body, self.delivery, self.headers)
        return args, kwargs


def decode(body: bytes, delivery: Mapping[str, Any], headers: Mapping[str, Any]) -> Any:
    """Decode a stored body with the serializer (and compression) that its own message names.

    Raises ``PayloadError`` for pickle, which is never loaded: a store that somebody else can write to would run their code.
    """
    content_type = delivery["content_type"]
    if content_type == PICKLE:
        raise PayloadError(
            "The message is pickled, and the guard never loads a pickle. Set task_serializer to json (or msgpack, yaml)."
        )
    if headers.get("compression"):
        from kombu.compression import decompress

        body = decompress(body, headers["compression"])
    return loads(body, content_type, delivery["content_encoding"], accept={content_type})


def decode_stored(payload: StoredPayload) -> tuple[Any, Any, Any]:
    """(args, kwargs, embed) of a message as it is stored, once it is decrypted. Raises what :func:`decode` raises."""
    args, kwargs, embed = decode(payload.body, json.loads(payload.delivery), json.loads(payload.headers))
    return args, kwargs, embed


def capture(app: Celery, name: str, args: Any, kwargs: Any, options: dict[str, Any]) -> Captured:
    """Have ``app`` build the message of a task. What Celery would raise for a bad call is raised here too.

    ``send_task`` calls the result backend unless the result is ignored, and with some backends that means a connection. So
    the message is built as if it were, and the header says afterwards what the caller said.
    """
    producer = _Capturing()
    protocol = nullcontext() if app.conf.task_protocol == 2 else _protocol_2(app)
    wanted = options.get("ignore_result")
    options["ignore_result"] = True
    with protocol:
        result = type(app).send_task(app, name, args, kwargs, producer=producer, **options)
    result.ignored = wanted
    body, headers, delivery, queue = producer.taken
    headers["ignore_result"] = wanted
    return Captured(body, headers, delivery, queue, result)


#: Whether what is being built here is built for the guard.
_capturing: ContextVar[bool] = ContextVar("celery_guard_capturing", default=False)


@contextmanager
def _protocol_2(app: Celery) -> Iterator[None]:
    """Have messages built by protocol 2 inside the block, though ``task_protocol`` says another: protocol 1 has no headers.

    Every worker that can run a guarded task understands it.
    """
    amqp = app.amqp
    plain = amqp.create_task_message
    if not hasattr(plain, "guard_chooses"):

        def create_task_message(*args: Any, **kwargs: Any) -> Any:
            return (amqp.as_task_v2 if _capturing.get() else plain)(*args, **kwargs)

        create_task_message.guard_chooses = True  # type: ignore[attr-defined]
        amqp.create_task_message = create_task_message
    token = _capturing.set(True)
    try:
        yield
    finally:
        _capturing.reset(token)


def encoded(body: str | bytes, content_encoding: str) -> bytes:
    """A body as a transport would be given it."""
    if isinstance(body, str):
        return body.encode(content_encoding if content_encoding != "binary" else "utf-8")
    return bytes(body)


class _Connection:
    """What ``send_task`` asks of a producer's connection. Nothing is sent, so nothing can be lost on the way."""

    recoverable_connection_errors: tuple[type[Exception], ...] = ()
    recoverable_channel_errors: tuple[type[Exception], ...] = ()
    connection_errors: tuple[type[Exception], ...] = ()
    channel_errors: tuple[type[Exception], ...] = ()

    def _reraise_as_library_errors(self) -> Any:
        return nullcontext()


#: A producer without a channel, as kombu makes it.
_UNBOUND = Producer(None)


class _Capturing(Producer):  # type: ignore[misc]
    """A producer that keeps the first message it is given. A second one is Celery's ``task-sent`` event, and is dropped."""

    connection = _Connection()

    def __init__(self) -> None:
        # each is what kombu makes of no channel, which need not be worked out for every message
        self.__dict__.update(_UNBOUND.__dict__)
        self._taken: tuple[bytes, dict[str, Any], dict[str, Any], str] | None = None
        self._exchange_type = "direct"

    @property
    def taken(self) -> tuple[bytes, dict[str, Any], dict[str, Any], str]:
        assert self._taken is not None, "Celery's send_task published nothing"
        return self._taken

    def publish(self, body: Any, exchange: Any = None, declare: Any = None, **options: Any) -> None:
        if self._taken is not None:
            return
        if isinstance(exchange, Exchange):
            self._exchange_type = exchange.type
        options["retry"] = False
        super().publish(body, exchange=exchange, declare=declare, **options)

    def _publish(
        self, body: Any, priority: Any, content_type: str, content_encoding: str, headers: Any, properties: Any,
        routing_key: str, mandatory: Any, immediate: Any, exchange: str, declare: Any, *_rest: Any,
    ) -> None:  # fmt: skip
        declared = next((entity.name for entity in declare or () if isinstance(entity, Queue)), None)
        queue = routing_key if declared is None else declared
        kept = {key: value for key, value in properties.items() if key not in _OF_THE_TRANSPORT}
        route = (exchange, self._exchange_type, routing_key, queue, declared is not None, priority)
        delivery = dict(zip(DELIVERY, (*route, content_type, content_encoding, kept), strict=True))
        self._taken = encoded(body, content_encoding), dict(headers), delivery, queue


def captures(producer: Any) -> bool:
    """Whether a message is being built with this producer, and none is sent."""
    return isinstance(producer, _Capturing)
