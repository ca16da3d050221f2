"""A fleet for each test: a broker, a store and a result backend that belong to it alone."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
import redis
from sqlalchemy import text
from sqlalchemy.engine import Engine

from celery_guard.store import open_store
from celery_guard.testing.databases import database, empty
from celery_guard.testing.services import POSTGRESQL
from tests.ledger import STACK

from .fleet import APP, Fleet

#: (broker, store, result backend) of a stack by name.
STACKS = {
    "embedded": ("files", "sqlite", "files"),
    "redis-postgresql": ("redis", "postgresql", "redis"),
    "rabbitmq-mariadb": ("rabbitmq", "mariadb", "redis"),
    "rabbitmq-postgresql": ("rabbitmq", "postgresql", "redis"),
    "redis-mariadb": ("redis", "mariadb", "redis"),
    "redis-redis": ("redis", "redis_store", "redis"),
}


@pytest.fixture
def make_fleet(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Callable[..., Fleet]]:
    """Make a fleet on a named stack; its workers are killed, and its queues dropped, when the test ends.

    ``conf`` is Celery's; ``transport`` are options of the broker's transport beside those that keep tests apart.
    """
    made: list[Fleet] = []
    dropped: list[Fleet] = []

    def make(
        stack: str, module: str = APP, own_broker: str | None = None, own_store: str | None = None,
        transport: Mapping[str, Any] | None = None, **conf: Any,
    ) -> Fleet:  # fmt: skip
        broker, store, backend = STACKS[stack]
        request.node.user_properties.append((STACK, stack))
        folder = tmp_path / f"fleet-{uuid4().hex[:12]}"
        folder.mkdir()
        store_url = own_store or request.getfixturevalue(f"{store}_url")
        with_tables = open_store(store_url)
        with_tables.upgrade()
        with_tables.close()
        empty(store_url)
        broker_url, broker_conf = (own_broker, {}) if own_broker else _broker(broker, folder, request)
        if transport:
            broker_conf = {"broker_transport_options": {**broker_conf["broker_transport_options"], **transport}}
        backend_url = (
            f"file://{_made(folder / 'results')}" if backend == "files" else request.getfixturevalue("redis_url") + "2"
        )
        fleet = Fleet(folder, broker_url, store_url, backend_url, module, **{**broker_conf, **conf})
        made.append(fleet)
        if own_broker is None:
            dropped.append(fleet)
        return fleet

    yield make
    for fleet in made:
        if fleet in dropped:
            _drop_queues(fleet)
        fleet.close()


@pytest.fixture
def fleet(request: pytest.FixtureRequest, make_fleet: Callable[..., Fleet]) -> Fleet:
    """A fleet on the stack that the test is parametrized with; by default Redis and PostgreSQL."""
    return make_fleet(getattr(request, "param", "redis-postgresql"))


@pytest.fixture
def shop(fleet: Fleet) -> Iterator[Engine]:
    """The user's own connections, and a table of the user's; for apps that have a ``shop``."""
    engine: Engine = fleet.app.shop()
    with engine.begin() as connection:
        connection.execute(text("CREATE TABLE IF NOT EXISTS shop_order (id INTEGER PRIMARY KEY)"))
        connection.execute(text("DELETE FROM shop_order"))
    yield engine
    engine.dispose()


def _broker(kind: str, folder: Path, request: pytest.FixtureRequest) -> tuple[str, dict[str, Any]]:
    if kind == "redis":
        options = {"visibility_timeout": 3600, "global_keyprefix": f"{folder.name}:"}
        return request.getfixturevalue("redis_url") + "1", {"broker_transport_options": options}
    if kind == "rabbitmq":
        return request.getfixturevalue("rabbitmq_url"), {}
    return f"files://localhost/{_made(folder / 'queue')}", {}


@pytest.fixture(scope="session")
def standing(tmp_path_factory: pytest.TempPathFactory, redis_url: str) -> Iterator[Fleet]:
    """One worker, on Redis and a PostgreSQL database of its own, for all tests that kill no node and count by job id.

    Its tasks are those of ``app_faults.py``. Made when it is first asked for; it lasts as long as the session.
    """
    folder = tmp_path_factory.mktemp("standing") / f"fleet-{uuid4().hex[:12]}"
    folder.mkdir()
    options = {"broker_transport_options": {"visibility_timeout": 3600, "global_keyprefix": f"{folder.name}:"}}
    with database(POSTGRESQL.need()) as store_url:
        with_tables = open_store(store_url)
        with_tables.upgrade()
        with_tables.close()
        fleet = Fleet(folder, redis_url + "1", store_url, redis_url + "2", "tests.integration.app_faults", **options)
        fleet.worker(concurrency=4)
        yield fleet
        _drop_queues(fleet)
        fleet.close()


def _drop_queues(fleet: Fleet) -> None:
    for worker in fleet.workers:
        worker.kill()
    url = fleet.environment["APP_BROKER"]
    if url.startswith("redis"):
        with redis.Redis.from_url(url) as client:
            for key in client.scan_iter(f"{fleet.folder.name}:*", count=1000):
                client.delete(key)
    elif url.startswith("amqp"):
        with fleet.app.app.connection_for_write() as connection:
            connection.default_channel.queue_delete(fleet.queue)


def _made(folder: Path) -> Path:
    folder.mkdir()
    return folder
