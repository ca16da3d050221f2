"""What is measured: the rows of the table, with the floor that each has to hold."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from . import enqueue, full, imports, memory, pickup, publish, sizes, throughput, trips
from .lab import Lab
from .options import Options

__all__ = ["FIGURES", "Figure"]


@dataclass(frozen=True, slots=True)
class Figure:
    """One row. ``measure`` answers with the figure's part of the report."""

    name: str
    what: str
    #: None: a number that is shown without one.
    floor: float | None
    measure: Callable[[Lab, Options], dict[str, Any]]
    #: The floor is a ceiling.
    at_most: bool = False

    def holds(self, value: float) -> bool:
        """Whether the floor holds, to the two digits that are shown."""
        if self.floor is None:
            return True
        return round(value, 2) <= self.floor if self.at_most else round(value, 2) >= self.floor

    @property
    def bound(self) -> str:
        """The floor in words."""
        return "" if self.floor is None else f"at most {self.floor:g}" if self.at_most else f"{self.floor:g}"


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
    Figure(
        "bare-redis-postgresql", "plain Celery with bodies that write one number twice / with bodies that do nothing: Redis, PostgreSQL", None,
        throughput.asking("redis", "postgresql"),
    ),
    Figure("bare-redis-redis", "… Redis, Redis", None, throughput.asking("redis", "redis")),
    Figure("bare-rabbitmq-postgresql", "… RabbitMQ, PostgreSQL", None, throughput.asking("rabbitmq", "postgresql")),
    Figure("bare-rabbitmq-redis", "… RabbitMQ, Redis", None, throughput.asking("rabbitmq", "redis")),
    Figure(
        "worker-5ms-postgresql", "the same with bodies that wait for 5 ms: Redis broker, PostgreSQL store", None,
        throughput.worker("redis", "postgresql", throughput.WAIT),
    ),
    Figure(
        "worker-5ms-redis", "… Redis broker, Redis store", None, throughput.worker("redis", "redis", throughput.WAIT)
    ),
    Figure(
        "plain-1ms", "plain Celery with bodies that wait for 1 ms / plain Celery with bodies that do nothing", None,
        throughput.waiting,
    ),
    Figure("delay", "one `.delay()` (own transaction, PostgreSQL) / plain `.delay()` on Redis", 1.0, enqueue.delay),
    Figure("enqueue-many", "`enqueue_many` of 10,000 / plain loop of `.delay()`", 4.0, enqueue.many),
    Figure("relay-redis", "relay on Redis / plain loop of `apply_async`", 5.0, publish.relay("redis")),
    Figure(
        "relay-rabbitmq", "relay on RabbitMQ with confirms / plain loop without", 1.5, publish.relay("rabbitmq")
    ),
    Figure(
        "pickup-postgresql", "idle pick-up, enqueue to start, p95, guarded / plain: PostgreSQL with NOTIFY", 3.0,
        pickup.idle("postgresql"), at_most=True,
    ),
    Figure("pickup-redis", "… Redis store", 3.0, pickup.idle("redis"), at_most=True),
    Figure("full-table", "throughput with 5,000,000 finished jobs in the table / empty table", 0.9, full.throughput),
    Figure(
        "memory", "memory of worker and relay over 50,000 jobs: at the end / after a fifth", 1.05, memory.growth,
        at_most=True,
    ),
    Figure("trips-postgresql", "store round trips an attempt (counted): PostgreSQL", 2.0, trips.attempt("postgresql"), at_most=True),
    Figure("trips-redis", "… Redis", 2.0, trips.attempt("redis"), at_most=True),
    Figure("import", "importing `celery` and `celery_guard` / `celery` alone", 1.1, imports.of_package, at_most=True),
    Figure("cold-start", "an app with a guard, a store and a task / an app with a task", None, imports.of_app, at_most=True),
    Figure("bytes", "bytes of a message, guarded / plain", None, sizes.of_a_job, at_most=True),
]  # fmt: skip
