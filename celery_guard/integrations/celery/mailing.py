"""Messages off and onto queues of the broker's, for the quarantine: as raw bytes, never decoded."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from amqp.exceptions import ChannelError, MessageNacked
from celery import Celery
from kombu import Connection, Producer
from kombu.exceptions import ChannelError as KombuChannelError

from celery_guard.flow.admin.quarantine import Fetched, Posted
from celery_guard.job.text import clean, type_name_of
from celery_guard.store.protocol import Quarantined

from .raw import as_text, delivery_of, raw_body

__all__ = ["CeleryMailing"]

#: Headers in which RabbitMQ notes why, and how often, it has set a message aside. A message that is put back begins anew.
_NOTES = ("x-death", "x-first-death-exchange", "x-first-death-queue", "x-first-death-reason", "x-last-death-exchange",
          "x-last-death-queue", "x-last-death-reason", "x-delivery-count")  # fmt: skip

_CONNECT_WITHIN = 5.0

#: How long the broker may take to say that it has a message (seconds).
_ANSWER_WITHIN = 30.0

#: The broker's word that it has not taken a message, or has no such queue.
_REFUSALS = (ChannelError, KombuChannelError, MessageNacked)


class CeleryMailing:
    """On the app's own broker, each time on a connection of its own."""

    def __init__(self, app: Celery) -> None:
        self._app = app

    def works_on(self, queue: str) -> bool:
        """See :class:`~celery_guard.flow.admin.quarantine.Mailing`."""
        conf = self._app.conf
        return queue == conf.task_default_queue or queue in self._app.amqp.queues

    def publish(self, message: Quarantined, queue: str) -> Posted:
        """See :class:`~celery_guard.flow.admin.quarantine.Mailing`."""
        headers = json.loads(message.headers or "{}")
        if not isinstance(headers, dict) or "unreadable" in headers:
            return Posted("refused", "its headers could not be kept as they were")
        headers = {name: value for name, value in headers.items() if name not in _NOTES}
        delivery = json.loads(message.delivery or "{}")
        with self._connected() as connection:
            try:
                channel = connection.channel()
                if connection.transport.driver_type == "amqp":
                    channel.queue_declare(queue=queue, passive=True)
            except _REFUSALS as error:
                return _refused(queue, error)
            except Exception as error:
                raise ConnectionError(f"The broker was lost before anything was sent: {type_name_of(error)}") from error
            try:
                Producer(channel, auto_declare=False).publish(
                    message.body, exchange="", routing_key=queue, content_type=message.content_type or None,
                    content_encoding=message.content_encoding or None, headers=headers, mandatory=True,
                    timeout=_ANSWER_WITHIN, **delivery,
                )  # fmt: skip
            except _REFUSALS as error:
                return _refused(queue, error)
            except Exception as error:  # noqa: BLE001 - every transport has its own; whatever it is, the broker may have the message
                return Posted("unknown", f"the broker was lost before it answered: {type_name_of(error)}")
        return Posted("taken")

    @contextmanager
    def fetch(self, queue: str, limit: int) -> Iterator[Iterator[Fetched]]:
        """See :class:`~celery_guard.flow.admin.quarantine.Mailing`. What is not acknowledged goes back when the channel is closed."""
        with self._connected() as connection:
            channel = connection.channel()
            try:
                yield self._taken(channel, queue, limit)
            finally:
                channel.close()

    def _taken(self, channel: Any, queue: str, limit: int) -> Iterator[Fetched]:
        for _ in range(limit):
            try:
                message = channel.basic_get(queue=queue, no_ack=False)
            except (ChannelError, KombuChannelError) as error:
                raise ConnectionError(f"the queue {queue} cannot be read: {error}") from error
            if message is None:
                return
            yield _fetched(message, channel, queue)

    @contextmanager
    def _connected(self) -> Iterator[Connection]:
        connection = self._app.connection_for_write()
        connection.transport_options = {**(connection.transport_options or {}), "confirm_publish": True}
        try:
            connection.ensure_connection(
                max_retries=1, interval_start=0, timeout=_CONNECT_WITHIN, reraise_as_library_errors=False
            )
        except Exception as error:
            # every transport has its own errors; whatever it is, nothing was sent
            connection.release()
            raise ConnectionError(f"The broker cannot be reached: {type(error).__name__}") from error
        try:
            yield connection
        finally:
            connection.release()


def _refused(queue: str, error: BaseException) -> Posted:
    return Posted("refused", f"the broker refused it for queue {queue}: {str(error) or type_name_of(error)}")


def _fetched(message: Any, channel: Any, queue: str) -> Fetched:
    read = channel.message_to_python(message) if hasattr(channel, "message_to_python") else message
    headers = dict(read.headers or {})
    origin, why = _noted(headers, queue)
    return Fetched(
        queue=origin,
        body=raw_body(read.body),
        headers=as_text(headers),
        content_type=str(read.content_type or "")[:255],
        content_encoding=str(read.content_encoding or "")[:255],
        delivery=delivery_of(read),
        reason=clean(why)[:500],
        acknowledge=lambda: channel.basic_ack(read.delivery_tag),
    )


def _noted(headers: Mapping[str, Any], queue: str) -> tuple[str, str]:
    """Which queue the message was meant for, and why the broker has set it aside."""
    deaths = headers.get("x-death")
    first = deaths[0] if isinstance(deaths, list) and deaths and isinstance(deaths[0], Mapping) else {}
    origin = str(first.get("queue") or headers.get("x-first-death-queue") or queue)
    why = str(first.get("reason") or headers.get("x-first-death-reason") or "no reason given")
    times = f", {first['count']} times" if first.get("count") else ""
    return origin, f"set aside by the broker in queue {queue}: {why}{times}"
