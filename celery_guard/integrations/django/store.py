"""The store in one of Django's databases: the SQL store, with connections like Django's own.

Its own reads and writes (claims, the relay's, settles) go over connections of the guard's, made with the arguments that Django would
use. Jobs that are enqueued by plain calls go over Django's connection, in its transaction if one is open; so a process that does only that
opens no other connection. What it asks beyond (a duplicate's stored value, a cancel), and what coroutines enqueue, goes over the guard's own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from functools import partial
from typing import Any

from django.db import Error, transaction

from celery_guard.job.row import NewJob
from celery_guard.job.verdict import Enqueued
from celery_guard.store.protocol import Door
from celery_guard.store.sql import SqlStore
from celery_guard.store.sql.accept import accept
from celery_guard.store.sql.doors import SqlDoor
from celery_guard.store.sql.statement import Cursor, Link
from celery_guard.store.sql.transient import is_transient

from .address import alias_of, arguments, place, shown_url, wrapper
from .door import DjangoCursor, is_open
from .transaction import DjangoSavepoint, DjangoTransaction

__all__ = ["DjangoStore", "open_store"]


def open_store(url: str, *, notify: bool = True, pool_size: int = 5) -> DjangoStore:
    """The store at ``django://alias``. Opens no connection before its first use.

    Raises:
        SettingError: there is no such alias, or no store for this kind of database.
    """
    return DjangoStore(alias_of(url), notify=notify, pool_size=pool_size)


class DjangoStore(SqlStore):
    """The queue of record in the database with this alias in ``settings.DATABASES``."""

    def __init__(self, alias: str, *, notify: bool = True, pool_size: int = 5) -> None:
        self.alias = alias
        super().__init__(
            shown_url(alias),
            notify=notify,
            pool_size=pool_size,
            connect=partial(arguments, alias),
            place=partial(place, alias),
        )

    def __repr__(self) -> str:
        return f"DjangoStore({self.alias!r})"

    @property
    def limits(self) -> Mapping[str, Any]:
        """What this store cannot keep. A body's transaction is Django's connection's, so a database in memory can have one too."""
        return {name: text for name, text in super().limits.items() if name != "G5"}

    def link(self, cursor: Cursor) -> Link:
        """A cursor of Django's, as the store's statements see it."""
        return self._doors.link(cursor)

    def around(self) -> Door | None:
        """Where a job goes that was given no transaction: into the one that is open on Django's connection of this thread. If none
        is, it is committed at once, over that connection if there is one; None where there is none.
        """
        connection = wrapper(self.alias)
        if is_open(connection):
            return self.own_door(connection)
        return None if connection.connection is None else _AtOnce(self, connection)

    def enqueue_over(self, connection: Any, jobs: Sequence[NewJob]) -> list[Enqueued]:
        """As :meth:`enqueue`, over a connection of Django's that is in no transaction: no other has to be opened."""

        def write(again: bool) -> list[Enqueued]:
            try:
                with nullcontext() if at_once else transaction.atomic(using=self.alias):
                    return accept(self.link(DjangoCursor(connection)), jobs, notify=self._notify, again=again)
            except Error as error:
                # what Django does between two requests: a connection that is of no use is closed, and opened anew when needed
                connection.close_if_unusable_or_obsolete()
                raise (error.__cause__ or error) from error

        at_once = self._traits.one_statement and len(jobs) == 1
        answers = self._database.repeated(write)
        self._bell.ring()
        return answers

    def own_door(self, connection: Any) -> SqlDoor | None:
        """The door for a connection of Django's that leads where the store's own lead; None where that is not known.

        Raises:
            StoreSchemaError: the tables are not there.
        """
        where = place(self.alias)
        if place(connection.alias, connection) != where:
            return None
        cursor = DjangoCursor(connection)
        self.cursor_door(cursor, where, same=True)
        return _OwnDoor(self.link(cursor), self._notify, self)

    def begin(self) -> DjangoTransaction:  # type: ignore[override]  # another Transaction, as the protocol has it
        """Begin a transaction on Django's connection of this thread, for a body's own writes.

        Raises:
            RuntimeError: a transaction is open there already.
        """
        return DjangoTransaction(self.alias, self.own_door, self._passes, self._settled)

    def _passes(self, error: BaseException) -> bool:
        """Whether what Django says about the database may pass by itself: its cause is the driver's own error."""
        return is_transient(error.__cause__ or error, self._database.engine.dialect)


class _OwnDoor(SqlDoor):
    """A transaction of Django's on the store's own database."""

    def __init__(self, link: Link, notify: bool, store: DjangoStore) -> None:
        super().__init__(link, notify)
        self._store = store

    def begin(self) -> DjangoSavepoint:  # type: ignore[override]  # another Transaction, as the protocol has it
        """A savepoint in the transaction, for a body's own writes and its job's end."""
        return DjangoSavepoint(self._store.alias, self._store.own_door)


class _AtOnce:
    """A door that commits."""

    def __init__(self, store: DjangoStore, connection: Any) -> None:
        self._store = store
        self._connection = connection

    def enqueue(self, jobs: Sequence[NewJob]) -> list[Enqueued]:
        return self._store.enqueue_over(self._connection, jobs)
