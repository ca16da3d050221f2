"""A watched driver says what is written, and is otherwise what it was."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

from celery_guard.testing.driver import watched


class Writes:
    """Counts writes, and looks at something after each."""

    def __init__(self) -> None:
        self.count = 0
        self.look: Callable[[], Any] = lambda: None
        self.seen: Any = None

    @contextmanager
    def __call__(self) -> Iterator[None]:
        self.count += 1
        yield
        self.seen = self.look()


@pytest.fixture
def writes() -> Writes:
    return Writes()


@pytest.fixture
def connection(writes: Writes) -> Iterator[Any]:
    with closing(watched(sqlite3.connect, writes)(":memory:", isolation_level=None)) as found:
        found.cursor().execute("CREATE TABLE shop (n)")
        yield found


def test_writes_are_said_and_reads_are_not(connection: Any, writes: Writes) -> None:
    cursor = connection.cursor()
    for statement in ("BEGIN", "INSERT INTO shop VALUES (1)", "SELECT n FROM shop", "  update shop SET n = 2"):
        cursor.execute(statement)
    cursor.execute("PRAGMA user_version")
    connection.commit()
    assert writes.count == 4


def test_a_commit_is_said_after_it_has_happened(connection: Any, writes: Writes) -> None:
    cursor = connection.cursor()
    cursor.execute("BEGIN")
    writes.look = lambda: connection.in_transaction
    cursor.execute("INSERT INTO shop VALUES (1)")
    assert writes.seen is True
    connection.commit()
    assert writes.seen is False


def test_a_write_that_answers_with_rows_is_said_after_it_has_happened(writes: Writes, tmp_path: Path) -> None:
    path = tmp_path / "shop.db"
    connect = watched(sqlite3.connect, writes)
    with closing(connect(path, isolation_level=None)) as one, closing(sqlite3.connect(path)) as other:
        one.cursor().execute("CREATE TABLE shop (n)")
        writes.look = lambda: other.execute("SELECT count(*) FROM shop").fetchone()
        one.cursor().execute("INSERT INTO shop VALUES (1), (2) RETURNING n")
        assert writes.seen == (2,)


@pytest.mark.parametrize("statement", ["INSERT INTO shop VALUES (1), (2), (3) RETURNING n", "SELECT n FROM shop"])
def test_rows_come_as_ever(connection: Any, statement: str) -> None:
    cursor = connection.cursor()
    if statement.startswith("SELECT"):
        cursor.execute("INSERT INTO shop VALUES (1), (2), (3)")
    assert cursor.execute(statement) is cursor
    assert cursor.fetchone() == (1,)
    assert cursor.fetchmany(1) == [(2,)]
    assert cursor.fetchall() == [(3,)]
    assert (cursor.fetchone(), cursor.fetchall()) == (None, [])


def test_it_is_taken_for_the_drivers_own(connection: Any) -> None:
    assert isinstance(connection, sqlite3.Connection)
    assert isinstance(connection.cursor(), sqlite3.Cursor)
    connection.row_factory = sqlite3.Row
    assert list(connection.cursor().execute("SELECT 1 AS one").fetchone().keys()) == ["one"]
