"""Asking workers and the broker how things stand just now. What they say is a hint for people; nothing correct rests on it."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Any

from celery import Celery

from celery_guard.flow.admin.blocker import Live

from .publisher import BrokerPublisher

__all__ = ["CeleryAsking"]

logger = logging.getLogger("celery_guard.admin")

#: How long workers are waited for, in seconds. All of them answer at once.
_WAIT = 1.5

#: Transports over which workers cannot be asked: a broadcast does not reach them, or not in time.
_MUTE = frozenset(
    {"memory", "filesystem", "files", "sqlalchemy", "sqs", "SQS", "gcpubsub", "azurestoragequeues", "azureservicebus"}
)


class CeleryAsking:
    """Asks over the app's own broker, each time on a connection of its own."""

    def __init__(self, app: Celery) -> None:
        self._app = app

    def ask(self, queues: Sequence[str]) -> Live:
        """See :class:`~celery_guard.flow.admin.facts.Asking`."""
        publisher = BrokerPublisher(self._app)
        try:
            depths = {queue: depth for queue in queues if (depth := publisher.depth(queue)) is not None}
        except ConnectionError as error:
            return Live(broker_out=str(error) or type(error).__name__)
        finally:
            publisher.close()
        return Live(consumers=self._consumers(), depths=depths)

    def _consumers(self) -> Mapping[str, tuple[str, ...]] | None:
        """Queue by queue the workers that consume it; None where nobody can be asked."""
        try:
            with self._app.connection_for_write() as connection:
                if connection.transport.driver_type in _MUTE:
                    return None
                answers = self._app.control.inspect(timeout=_WAIT, connection=connection).active_queues()
        except Exception as error:  # noqa: BLE001 - every transport has its own errors; no answer is an answer here
            logger.debug("the workers could not be asked: %s", error)
            return None
        return _by_queue(answers or {})


def _by_queue(answers: Mapping[str, Any]) -> Mapping[str, tuple[str, ...]]:
    found: dict[str, list[str]] = {}
    for worker, queues in sorted(answers.items()):
        for queue in queues or ():
            found.setdefault(queue["name"], []).append(worker)
    return {queue: tuple(workers) for queue, workers in found.items()}
