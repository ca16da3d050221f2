"""What differs between the databases: one small file each, and the few words in which they differ."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from sqlalchemy.engine import URL

from celery_guard.errors import SettingError

__all__ = ["Traits", "traits_of"]


@dataclass(frozen=True, slots=True)
class Traits:
    """One database, as far as the store has to know it."""

    name: str
    #: Begins a transaction that writes.
    begin: str
    #: Begins a transaction of a body's, which reads and writes what it likes.
    begin_body: str
    #: Several tables are written by one statement, so that a round trip is a transaction.
    one_statement: bool
    #: ``UPDATE`` answers with the rows it changed.
    returning: bool
    #: Rows that somebody else has locked can be left out: always, never, or to be found out (None).
    skip_locked: bool | None
    #: Once for each new connection: the store's own, or one for the transactions of bodies (False).
    greet: Callable[[Any, bool], None]
    #: Whether a driver's error says that a unique value exists already.
    is_duplicate: Callable[[BaseException], bool]
    #: Whether the server does not know a clause that was tried.
    is_syntax_error: Callable[[BaseException], bool]
    #: Arguments for ``create_engine``.
    engine_options: Callable[[URL], dict[str, Any]]
    #: Stands before a statement that locks rows, in a transaction of a caller's: it finds them as they are, whatever that has seen before.
    as_they_are: str = ""
    #: The cursor to keep for as long as there is its connection, given a new one.
    kept: Callable[[Any], Any] = lambda cursor: cursor


def traits_of(name: str) -> Traits:
    """The traits of a database, by SQLAlchemy's name of it.

    Raises:
        SettingError: no store is written for it.
    """
    from . import mysql, postgresql, sqlite

    known = {
        "postgresql": postgresql.TRAITS,
        "mysql": mysql.TRAITS,
        "mariadb": mysql.TRAITS,
        "sqlite": sqlite.TRAITS,
    }
    if name not in known:
        raise SettingError(f"Setting store: there is no SQL store for {name!r}; there are {', '.join(known)}.")
    return known[name]
