"""A database of its own for a run of tests, and how to empty it between two tests.

With the plain drivers, because what is tested here is what a store does with the same databases. On Redis a database is a name:
the keys of one store.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit, urlunsplit
from uuid import uuid4

__all__ = ["database", "empty", "lose_message"]

#: Rows that say which database this is and how new its tables are.
_KEPT = ("guard_store", "guard_version")


class _Emptying:
    """What is remembered of a database that is emptied hundreds of times: a connection, and its tables once it has any."""

    def __init__(self, url: str) -> None:
        self._connection = _connect(url)
        if impatient := _IMPATIENT.get(_kind(url)):
            _run(self._connection, impatient)
        self._listing = _LISTINGS[_kind(url)]
        self._tables: list[str] = []

    def empty(self) -> None:
        if not self._tables:
            found = sorted(name for (name,) in _run(self._connection, self._listing))
            self._tables = [name for name in found if name.startswith("guard_") and name not in _KEPT]
            # Names as the catalog has them, and made of letters only.
            assert all(name.isidentifier() for name in self._tables), self._tables
        _run(self._connection, "BEGIN")
        try:
            for name in self._tables:
                _run(self._connection, f"DELETE FROM {name}")  # noqa: S608
        except BaseException:
            _run(self._connection, "ROLLBACK")
            raise
        _run(self._connection, "COMMIT")

    def close(self) -> None:
        self._connection.close()


#: For the databases that were made here, which are closed here too.
_made: dict[str, _Emptying | None] = {}


@contextmanager
def database(url: str) -> Iterator[str]:
    """The URL of a new database on the server at ``url``, for as long as the block; then it is dropped."""
    name = f"guard_test_{uuid4().hex[:12]}"
    if _kind(url) == "redis":
        made = urlunsplit(urlsplit(url)._replace(query=f"name={name}"))
        try:
            yield made
        finally:
            _unlink(made, kept=())
        return
    with closing(_connect(url)) as connection:
        _run(connection, f"CREATE DATABASE {name}")
    made = urlunsplit(urlsplit(url)._replace(path=f"/{name}"))
    _made[made] = None
    try:
        yield made
    finally:
        if (kept := _made.pop(made)) is not None:
            kept.close()
        force = " WITH (FORCE)" if _kind(url) == "postgresql" else ""
        with closing(_connect(url)) as connection:
            if _kind(url) == "mysql":
                _run(connection, "SET lock_wait_timeout = 10")
            _run(connection, f"DROP DATABASE IF EXISTS {name}{force}")


def empty(url: str) -> None:
    """Delete every row of the guard's tables, but not what says which store this is and how new its tables are."""
    if _kind(url) == "redis":
        _unlink(url, kept=("store",))
        return
    if url not in _made:
        with closing(_Emptying(url)) as once:
            once.empty()
        return
    kept = _made[url] or _Emptying(url)
    _made[url] = kept
    kept.empty()


def lose_message(url: str, id: str) -> None:
    """Delete the message of a job behind the store's back, as a person or an eviction may."""
    assert id.replace("-", "").isalnum(), id
    if _kind(url) == "redis":
        with _redis(url) as (client, tag):
            client.delete(f"{tag}payload:{id}")
        return
    with closing(_connect(url)) as connection:
        _run(connection, f"DELETE FROM guard_payload WHERE job = '{id}'")  # noqa: S608


def _kind(url: str) -> str:
    scheme = urlsplit(url).scheme.partition("+")[0]
    return {"postgres": "postgresql", "mariadb": "mysql"}.get(scheme, scheme)


def _unlink(url: str, kept: Sequence[str]) -> None:
    """Delete the keys of a store, whose name is in the URL, but for those that are kept."""
    with _redis(url) as (client, tag):
        found = [key for key in client.scan_iter(f"{tag}*", count=5000) if key.decode().removeprefix(tag) not in kept]
        if found:
            client.unlink(*found)


@contextmanager
def _redis(url: str) -> Iterator[tuple[Any, str]]:
    """A connection, and what the keys of the store in the URL begin with."""
    import redis

    with redis.Redis.from_url(urlunsplit(urlsplit(url)._replace(query=""))) as client:
        yield client, f"{{guard:{dict(parse_qsl(urlsplit(url).query)).get('name', 'main')}}}:"


_OF_THIS_DATABASE = "SELECT table_name FROM information_schema.tables WHERE table_schema = "

_LISTINGS = {
    "sqlite": "SELECT name FROM sqlite_master WHERE type = 'table'",
    "postgresql": f"{_OF_THIS_DATABASE} current_schema()",
    "mysql": f"{_OF_THIS_DATABASE} DATABASE()",
}

#: A test that left a transaction open is found out soon.
_IMPATIENT = {"postgresql": "SET lock_timeout = '5s'", "mysql": "SET innodb_lock_wait_timeout = 5"}


def _connect(url: str) -> Any:
    """A connection of the plain driver, each statement of which is committed by itself."""
    parts = urlsplit(url)
    path = parts.path[1:]
    if _kind(url) == "sqlite":
        return sqlite3.connect(Path(path), isolation_level=None, timeout=3)
    given: dict[str, Any] = {"host": parts.hostname, "user": parts.username, "password": unquote(parts.password or "")}
    if parts.port is not None:
        given["port"] = parts.port
    if _kind(url) == "postgresql":
        import psycopg

        return psycopg.connect(dbname=path, autocommit=True, **given)
    import pymysql

    return pymysql.connect(database=path, autocommit=True, **given)


def _run(connection: Any, sql: str) -> list[Any]:
    cursor = connection.cursor()
    try:
        cursor.execute(sql)
        return list(cursor.fetchall()) if cursor.description else []
    finally:
        cursor.close()
