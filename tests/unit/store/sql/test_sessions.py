"""Sessions of the store's own: each has one cursor, and none is lost to the pool."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from celery_guard.errors import StoreUnavailableError
from celery_guard.store.patience import Patience
from celery_guard.store.sql import SqlStore
from celery_guard.store.sql.statements.accept import identity


class _Place:
    """Says where the database is, unless it is told to fail."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.fails = False

    def __call__(self) -> Mapping[str, Any]:
        if self.fails:
            raise ConnectionError("nobody is there")
        return {"database": str(self._path)}


@pytest.fixture
def place(tmp_path: Path) -> _Place:
    return _Place(tmp_path / "store.db")


@pytest.fixture
def store(place: _Place) -> Iterator[SqlStore]:
    """A store with one session, which nobody waits for."""
    store = SqlStore(
        "sqlite:///elsewhere.db", pool_size=1, pool_timeout=0.01, patience=Patience(tries=1), connect=place
    )
    store.upgrade()
    yield store
    store.close()


def _ask(store: SqlStore) -> int:
    """A question by the short way."""
    return len(store._database.quick(lambda link, again: link.rows(identity, {})))


def test_a_session_that_was_forgotten_leaves_its_place_without_its_connection(store: SqlStore) -> None:
    taken = store._database._take()
    before = taken.connection
    with pytest.raises(StoreUnavailableError):
        _ask(store)
    del taken
    assert _ask(store) == 1
    assert store._database._take().connection is not before


def test_a_session_that_cannot_be_connected_leaves_its_place(store: SqlStore, place: _Place) -> None:
    with pytest.raises(KeyboardInterrupt):
        store._database.quick(_interrupted)
    place.fails = True
    for _ in range(2):
        with pytest.raises(ConnectionError):
            _ask(store)
    place.fails = False
    assert _ask(store) == 1


def test_a_cursor_is_kept_as_long_as_its_connection(store: SqlStore) -> None:
    cursors: list[Any] = []

    def note(link: Any, again: bool) -> None:
        cursors.append(link._cursor)

    store._database.quick(note)
    store._database.whole(note)
    with pytest.raises(KeyboardInterrupt):
        store._database.quick(_interrupted)
    store._database.quick(note)
    assert cursors[0] is cursors[1]
    assert cursors[2] is not cursors[1]


def _interrupted(link: Any, again: bool) -> None:
    raise KeyboardInterrupt
