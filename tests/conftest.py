"""Servers and databases for every test that asks for one. A run makes its own databases, and drops them."""

from __future__ import annotations

import functools
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any

import pytest
from celery import _state
from kombu import Producer

from celery_guard.testing.databases import database, empty
from celery_guard.testing.services import MARIADB, POSTGRESQL, RABBITMQ, REDIS


@pytest.fixture(scope="session")
def sqlite_url(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A database file of this run's own."""
    path: Path = tmp_path_factory.mktemp("sqlite") / "guard.db"
    return f"sqlite:///{path}"


@pytest.fixture(scope="session")
def postgresql_url() -> Iterator[str]:
    """A PostgreSQL database of this run's own."""
    with database(POSTGRESQL.need()) as url:
        yield url


@pytest.fixture(scope="session")
def mariadb_url() -> Iterator[str]:
    """A MariaDB database of this run's own."""
    with database(MARIADB.need()) as url:
        yield url


@pytest.fixture(scope="session")
def redis_store_url(redis_url: str) -> Iterator[str]:
    """A Redis store of this run's own."""
    with database(redis_url + "3") as url:
        yield url


@pytest.fixture(params=["sqlite", "postgresql", "mariadb"])
def store_url(request: pytest.FixtureRequest) -> str:
    """Each database in turn, with nothing in the guard's tables, if it has them yet."""
    url: str = request.getfixturevalue(f"{request.param}_url")
    empty(url)
    return url


@pytest.fixture(scope="session")
def redis_url() -> str:
    return REDIS.need()


@pytest.fixture(scope="session")
def rabbitmq_url() -> str:
    return RABBITMQ.need()


@pytest.fixture(autouse=True)
def shares_no_task() -> Iterator[None]:
    """A task that a test makes without ``shared=False`` would be a task of every later app in the process."""
    before = set(_state._on_app_finalizers)
    yield
    left = {found for found in _state._on_app_finalizers - before if found.__module__ != "celery.app.builtins"}
    _state._on_app_finalizers -= left
    assert not left, "this test made a task that every later app has, too: give it shared=False"


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """What a test has written may hold lone surrogates, which cannot travel from one process of a run to another."""
    report = yield
    report.sections = [(name, text.encode("utf-8", "backslashreplace").decode()) for name, text in report.sections]
    return report


@pytest.fixture(params=[True, False], ids=["wrapped", "replaced"])
def patched_publish(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The bodies that go through a patch of kombu's ``publish``, such as monitoring agents make."""
    plain, seen = Producer.publish, []

    def publish(self: Any, body: Any, *args: Any, **options: Any) -> Any:
        seen.append(body)
        return plain(self, body, *args, **options)

    monkeypatch.setattr(Producer, "publish", functools.wraps(plain)(publish) if request.param else publish)
    return seen
