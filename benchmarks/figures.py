"""What is measured: the rows of the table, with the floor that each has to hold."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from . import enqueue, throughput
from .lab import Lab
from .options import Options

__all__ = ["FIGURES", "Figure"]


@dataclass(frozen=True, slots=True)
class Figure:
    """One row. ``measure`` answers with the figure's part of the report."""

    name: str
    what: str
    floor: float
    measure: Callable[[Lab, Options], dict[str, Any]]
    #: The floor is a ceiling.
    at_most: bool = False
    conditions: dict[str, Any] = field(default_factory=dict)

    def holds(self, value: float) -> bool:
        return value <= self.floor if self.at_most else value >= self.floor


FIGURES = [
    Figure(
        "worker-redis-postgresql", "worker throughput, guarded / plain: Redis broker, PostgreSQL store", 0.75,
        throughput.worker("redis", "postgresql"),
    ),
    Figure("worker-redis-redis", "… Redis broker, Redis store", 0.90, throughput.worker("redis", "redis")),
    Figure(
        "worker-rabbitmq-postgresql", "… RabbitMQ, PostgreSQL store", 0.50, throughput.worker("rabbitmq", "postgresql")
    ),
    Figure("worker-rabbitmq-redis", "… RabbitMQ, Redis store", 0.75, throughput.worker("rabbitmq", "redis")),
    Figure("delay", "one `.delay()` (own transaction, PostgreSQL) / plain `.delay()` on Redis", 1.0, enqueue.delay),
    Figure("enqueue-many", "`enqueue_many` of 10,000 / plain loop of `.delay()`", 4.0, enqueue.many),
]  # fmt: skip
