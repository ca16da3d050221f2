"""SQLite: one writer at a time, and clauses of its own to make that bearable.

A write transaction begins as IMMEDIATE: one that reads first and writes later is refused at once when another wrote in
between, however long it would have waited. The write-ahead log lets readers pass a writer.

While a transaction of the caller's that has written is open, the store's own writes wait, and are unavailable when it stays
open for long. So a key that an open transaction is taking is not answered ``Busy``: whoever wants it too waits for the writer, or
gets SQLite's "database is locked" in a transaction of its own. A body's transaction keeps even the renewal of its own lease
waiting once it has written: it has to end within a lease.
"""

from __future__ import annotations

import sqlite3
from typing import Any

from sqlalchemy.engine import URL

from celery_guard.errors import SettingError
from celery_guard.store.sql.address import in_memory

from . import Traits

__all__ = ["TRAITS"]

#: RETURNING.
_OLDEST = (3, 35, 0)

#: How long a statement waits for the writer before it is a transient error, in seconds.
_BUSY_TIMEOUT = 5


def _greet(connection: Any, own: bool) -> None:
    cursor = connection.cursor()
    try:
        if not own:
            # nobody repeats what a body writes: it waits as long as the store is patient with its own (milliseconds)
            cursor.execute("PRAGMA busy_timeout = 15000")
        cursor.execute("PRAGMA journal_mode = WAL")
    except sqlite3.OperationalError as error:
        # A file that has no log yet, and that somebody writes just now: whoever connects next makes it.
        if not str(error).startswith("database is locked"):
            raise
    finally:
        cursor.close()


def _is_duplicate(error: BaseException) -> bool:
    return "UNIQUE constraint failed" in str(error)


def _is_syntax_error(error: BaseException) -> bool:
    return "syntax error" in str(error)


def _engine_options(url: URL) -> dict[str, Any]:
    if sqlite3.sqlite_version_info < _OLDEST:
        raise SettingError(
            f"Setting store: this Python has SQLite {sqlite3.sqlite_version}; the store needs "
            f"{'.'.join(map(str, _OLDEST))} or newer. Use a newer Python, or another database."
        )
    options: dict[str, Any] = {"connect_args": {"timeout": _BUSY_TIMEOUT, "check_same_thread": False}}
    if in_memory(url):
        # A database in memory is its connection: everybody takes turns on the one.
        options.update(pool_size=1)
    return options


TRAITS = Traits(
    name="sqlite",
    begin="BEGIN IMMEDIATE",
    begin_body="BEGIN",
    one_statement=False,
    returning=True,
    skip_locked=False,
    greet=_greet,
    is_duplicate=_is_duplicate,
    is_syntax_error=_is_syntax_error,
    engine_options=_engine_options,
)
