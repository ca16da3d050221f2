"""The ``task-sent`` event, for monitors that ask for it (``task_send_sent_event``): sent once the broker has the message. Best effort."""

from __future__ import annotations

import json
import logging
from collections.abc import Container, Sequence
from typing import Any

from celery import Celery
from kombu import Producer

from celery_guard.job.row import Outgoing, StoredPayload

__all__ = ["SentEvents"]

logger = logging.getLogger("celery_guard.relay")


class SentEvents:
    """Tells monitors what a relay has published, on a channel of its own: the other one counts what is confirmed on it."""

    def __init__(self, app: Celery) -> None:
        self._app = app
        self._dispatcher: Any = None
        self._of: Any = None
        self._channel: Any = None

    def announce(self, connection: Any, rows: Sequence[Outgoing], sent: Container[str]) -> None:
        """One event for each of the rows that was sent, if the app wants them. Whatever goes wrong is logged, and changes nothing."""
        if not self._app.conf.task_send_sent_event or connection is None:
            return
        try:
            if self._dispatcher is None:
                self._dispatcher = self._app.events.Dispatcher(enabled=False, buffer_while_offline=False)
            if self._channel is None or self._of is not connection:
                self._of, self._channel = connection, connection.channel()
            producer = Producer(self._channel, auto_declare=False)
            for row in rows:
                if row.id in sent and row.payload is not None:
                    self._dispatcher.publish("task-sent", _event(row, row.payload), producer)
        except Exception as error:  # noqa: BLE001 - every transport has its own; the jobs are with the broker
            self._channel = None
            logger.warning("monitors were not told what was sent: %s", error)


def _event(row: Outgoing, payload: StoredPayload) -> dict[str, Any]:
    headers, delivery = json.loads(payload.headers), json.loads(payload.delivery)
    return {
        "uuid": row.id,
        "root_id": headers.get("root_id"),
        "parent_id": headers.get("parent_id"),
        "name": row.task,
        "args": headers.get("argsrepr"),
        "kwargs": headers.get("kwargsrepr"),
        "retries": row.retries,
        "eta": None,
        "expires": headers.get("expires"),
        "queue": delivery["queue"],
        "exchange": delivery["exchange"],
        "routing_key": delivery["routing_key"],
    }
