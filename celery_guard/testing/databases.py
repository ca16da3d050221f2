"""A database of its own for a run of tests, and how to empty it between two tests.

With the plain drivers, because what is tested here is what a store does with the same databases.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit, urlunsplit
from uuid import uuid4

__all__ = ["database", "empty"]

#: Rows that say which database this is and how new its tables are.
_KEPT = ("guard_store", "guard_version")

#: What was found at each URL, once there were any.
_tables_seen: dict[str, list[str]] = {}


@contextmanager
def database(url: str) -> Iterator[str]:
    """The URL of a new database on the server at ``url``, for as long as the block; then it is dropped."""
    name = f"guard_test_{uuid4().hex[:12]}"
    with closing(_connect(url)) as connection:
        _run(connection, f"CREATE DATABASE {name}")
    try:
        yield urlunsplit(urlsplit(url)._replace(path=f"/{name}"))
    finally:
        force = " WITH (FORCE)" if url.startswith("postgres") else ""
        with closing(_connect(url)) as connection:
            if url.startswith(("mysql", "mariadb")):
                _run(connection, "SET lock_wait_timeout = 10")
            _run(connection, f"DROP DATABASE IF EXISTS {name}{force}")


def empty(url: str) -> None:
    """Delete every row of the guard's tables, but not what says which store this is and how new its tables are."""
    with closing(_connect(url)) as connection:
        tables = _tables_seen.get(url) or [name for name in _tables(connection, url) if name not in _KEPT]
        _tables_seen[url] = tables
        # Names as the catalog has them, and made of letters only.
        assert all(name.isidentifier() for name in tables), tables
        _run(connection, "BEGIN")
        for name in tables:
            _run(connection, f"DELETE FROM {name}")  # noqa: S608
        _run(connection, "COMMIT")


def _connect(url: str) -> Any:
    """A connection of the plain driver, each statement of which is committed by itself."""
    parts = urlsplit(url)
    path = parts.path[1:]
    if parts.scheme.startswith("sqlite"):
        return sqlite3.connect(Path(path), isolation_level=None, timeout=3)
    given: dict[str, Any] = {"host": parts.hostname, "user": parts.username, "password": unquote(parts.password or "")}
    if parts.port is not None:
        given["port"] = parts.port
    if parts.scheme.startswith("postgres"):
        import psycopg

        return psycopg.connect(dbname=path, autocommit=True, **given)
    import pymysql

    return pymysql.connect(database=path, autocommit=True, **given)


def _tables(connection: Any, url: str) -> list[str]:
    """The guard's tables, as the database's catalog lists them."""
    if url.startswith("sqlite"):
        listing = "SELECT name FROM sqlite_master WHERE type = 'table'"
    elif url.startswith("postgres"):
        listing = "SELECT table_name FROM information_schema.tables WHERE table_schema = current_schema()"
    else:
        listing = "SELECT table_name FROM information_schema.tables WHERE table_schema = DATABASE()"
    return sorted(name for (name,) in _run(connection, listing) if name.startswith("guard_"))


def _run(connection: Any, sql: str) -> list[Any]:
    cursor = connection.cursor()
    try:
        cursor.execute(sql)
        return list(cursor.fetchall()) if cursor.description else []
    finally:
        cursor.close()
