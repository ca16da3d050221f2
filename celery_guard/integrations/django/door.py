"""The door of Django's transactions: jobs are rows that Django's own connection writes.

A row is part of the transaction that is open, and obeys its savepoints. Nothing is begun, committed or caught here: what the database
says is raised by Django's cursor, as Django's exception, to the caller.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from celery_guard.errors import WrongDatabaseError
from celery_guard.store.protocol import Door, Store

from . import in_project

__all__ = ["DjangoCursor", "door_of", "is_open"]


class DjangoCursor:
    """A cursor of Django's for each statement, closed at once: nothing is left open on the caller's connection."""

    def __init__(self, connection: Any) -> None:
        self._connection = connection
        self._rows: list[Any] = []
        self.rowcount = -1

    @property
    def commits_at_once(self) -> bool:
        """Whether no transaction is open."""
        return not is_open(self._connection)

    def execute(self, sql: str, parameters: Any, /) -> None:
        """Run one statement and fetch all of its answer."""
        with self._connection.cursor() as cursor:
            cursor.execute(sql, parameters)
            self.rowcount = cursor.rowcount
            self._rows = list(cursor.fetchall()) if cursor.description else []

    def fetchall(self) -> Sequence[Any]:
        """The answer."""
        return self._rows


def door_of(store: Store, transaction: object) -> Door:
    """The door for one of Django's connections, or the alias of one.

    Raises:
        TypeError: it is neither, or the store is no SQL store.
        WrongDatabaseError: there is no such alias, or it is not on the store's database.
    """
    if not in_project():
        raise TypeError(
            "using() was given a text. That would be the alias of one of Django's databases, and this process has no Django project "
            "(DJANGO_SETTINGS_MODULE). Give a Session or a Connection of SQLAlchemy's, on the store's database."
        )
    from celery_guard.store.sql import SqlStore

    from .address import place
    from .store import DjangoStore

    connection = _connection(transaction)
    if not isinstance(store, SqlStore):
        raise TypeError(f"{type(store).__name__} cannot join a transaction of Django's: it is no SQL database.")
    if isinstance(store, DjangoStore) and (door := store.own_door(connection)) is not None:
        return door
    if store.kind != connection.vendor:
        raise WrongDatabaseError(
            f"The connection {connection.alias!r} is on a {connection.vendor} database, the store is on a {store.kind} one. A job "
            "can only be accepted in a transaction on the store's own database: give that one, or none."
        )
    return store.cursor_door(DjangoCursor(connection), place(connection.alias, connection))


def _connection(transaction: object) -> Any:
    from django.db import connections
    from django.db.backends.base.base import BaseDatabaseWrapper
    from django.utils.connection import ConnectionProxy

    if isinstance(transaction, str):
        if transaction not in connections:
            raise WrongDatabaseError(
                f"using({transaction!r}): settings.DATABASES has no such alias; it has {', '.join(map(repr, connections))}."
            )
        return connections[transaction]
    if isinstance(transaction, ConnectionProxy):
        return connections[transaction.alias]
    if isinstance(transaction, BaseDatabaseWrapper):
        return transaction
    raise TypeError(
        f"There is no door for {type(transaction).__name__}. Give a connection of Django's (django.db.connections[...]) or its alias."
    )


def is_open(connection: Any) -> bool:
    """Whether what this connection writes now waits for a commit: inside ``atomic()``, or with autocommit off."""
    if connection.in_atomic_block:
        return True
    if connection.connection is None:
        return not connection.settings_dict["AUTOCOMMIT"]
    return not connection.autocommit
