"""A store on each database in turn, and one of the embedded default."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

import pytest

from celery_guard.store.patience import Patience
from celery_guard.store.sql import SqlStore
from celery_guard.testing.databases import database

#: Enough tries for a test, and no waiting between them.
SHORT = Patience(tries=3, seconds=2, first=0.001, cap=0.001)

NewDatabase = Callable[[], str]


@pytest.fixture
def store(store_url: str) -> Iterator[SqlStore]:
    """A store on each database, with nothing in it."""
    opened = SqlStore(store_url, patience=SHORT)
    opened.upgrade()
    yield opened
    opened.close()


@pytest.fixture
def embedded(tmp_path: Path) -> Iterator[SqlStore]:
    """A store that needs no server."""
    opened = SqlStore(f"sqlite:///{tmp_path / 'guard.db'}", patience=SHORT)
    opened.upgrade()
    yield opened
    opened.close()


@pytest.fixture(params=["sqlite", "postgresql", "mariadb"])
def new_database(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[NewDatabase]:
    """Makes databases without any tables, of each kind in turn."""
    made: list[str] = []
    with ExitStack() as dropping:

        def make() -> str:
            made.append(f"sqlite:///{tmp_path / str(len(made))}.db")
            if request.param == "sqlite":
                return made[-1]
            url = urlsplit(request.getfixturevalue(f"{request.param}_url"))
            return dropping.enter_context(database(urlunsplit(url)))

        yield make
