"""Doors: transactions of the caller's through which jobs are accepted.

Through a door nothing is begun, committed, rolled back, repeated or swallowed, and no savepoint is set. The rows are part of the
caller's transaction, so they obey its end, and those of its savepoints, without further work. What the database says about
it (a deadlock, a serialization failure) reaches the caller unchanged.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Any
from weakref import WeakSet

from sqlalchemy.engine import Connection, Dialect
from sqlalchemy.exc import UnboundExecutionError
from sqlalchemy.orm import Session, scoped_session

from celery_guard.errors import StoreSchemaError, WrongDatabaseError
from celery_guard.job.row import NewJob, StoredFailure, StoredResult
from celery_guard.job.settlement import Settlement
from celery_guard.job.state import State
from celery_guard.job.verdict import Claimed, Enqueued
from celery_guard.lazy import lazy
from celery_guard.store.calls import owner_of_this_claim

from .accept import accept
from .run import Move, claim, outcome, settle
from .statement import ConnectionLink, Cursor, CursorLink, Link, Texts
from .statements.accept import has_store, identity

if TYPE_CHECKING:
    from .async_doors import AsyncDoors, AsyncSqlDoor
    from .transaction import SqlTransaction

__all__ = ["Doors", "SqlDoor"]


class SqlDoor:
    """One transaction of the caller's."""

    def __init__(self, link: Link, notify: bool) -> None:
        self._link = link
        self._notify = notify

    @property
    def commits_at_once(self) -> bool:
        """Whether there is no transaction: what is written is everybody's at once."""
        return self._link.commits_at_once()

    def enqueue(self, jobs: Sequence[NewJob]) -> list[Enqueued]:
        """Write the rows into the caller's transaction; answers in the order of ``jobs``."""
        return accept(self._link, jobs, notify=self._notify, look_first=True)

    def settle(self, settlement: Settlement) -> bool:
        """Write an attempt's end into the caller's transaction, together with what the caller writes there.

        False: the attempt does not own the job any more; roll back.
        """
        return self.move(settlement) is not Move.REFUSED

    def move(self, settlement: Settlement) -> Move:
        """As :meth:`settle`; says also whether others wait for this outcome."""
        return settle(self._link, settlement, notify=self._notify)

    def claim(self, id: str, owner: str, lease: timedelta) -> Claimed:
        """Take the job for one attempt, in the caller's transaction; or say why not."""
        return claim(self._link, id, owner_of_this_claim(owner), lease)

    def outcome(self, id: str) -> tuple[State, StoredResult | None, StoredFailure | None] | None:
        """The stored outcome of a job, as the caller's transaction sees it; None where there is no such row."""
        return outcome(self._link, id)

    def begin(self) -> SqlTransaction:
        """A savepoint in the caller's transaction, for a body's own writes and its job's end.

        Raises ``NotImplementedError`` for a cursor: there is no session that would go with it.
        """
        from .transaction import BodySession, SqlTransaction

        if not isinstance(self._link, ConnectionLink):
            raise NotImplementedError(
                "job.transaction() is not to be had in eager mode through a cursor's transaction."
            )
        session = BodySession(self._link.connection(), join_transaction_mode="create_savepoint")
        return SqlTransaction(session, self._link.texts, self._notify, lambda settlement, move: None)


class Doors:
    """Opens doors, having looked once for each of the caller's engines whether its database is the store's."""

    def __init__(self, own_dialect: Dialect, own_identity: Callable[[], str], notify: bool) -> None:
        self._own_dialect = own_dialect
        self._own_identity = own_identity
        self._notify = notify
        # An engine has one dialect, which its copies with other execution options share.
        self._engines: WeakSet[Dialect] = WeakSet()
        self._named: set[Hashable] = set()
        self._texts: dict[tuple[type[Dialect], str], Texts] = {}

    @lazy
    def _asynchronous(self) -> AsyncDoors:
        from .async_doors import AsyncDoors

        return AsyncDoors(self._own_dialect.name, self._open)

    def open(self, transaction: object) -> SqlDoor | AsyncSqlDoor:
        """The door for a session or a connection of SQLAlchemy's, or of its asyncio part.

        Raises:
            TypeError: there is no door for such an object.
            TransactionError: there is none for its driver.
            WrongDatabaseError: it is not on the store's database.
        """
        if _waits(transaction) and (door := self._asynchronous.open(transaction)):
            return door
        return self._open(transaction)

    def _open(self, transaction: object) -> SqlDoor:
        ask = partial(_connection_of, transaction)
        dialect = ask().dialect
        link = ConnectionLink(self._texts_of(dialect, dialect.paramstyle), ask)
        if dialect not in self._engines:
            self._recognize(link)
            self._engines.add(dialect)
        return SqlDoor(link, self._notify)

    def open_cursor(self, cursor: Cursor, database: Hashable, *, same: bool = False) -> SqlDoor:
        """The door for a cursor that takes ``%s`` and a sequence, whatever its driver takes, as Django's do.

        Args:
            database: names the cursor's database; looked at once for each name.
            same: it is known to be the store's, and looked at only for the tables.
        """
        link = self.link(cursor)
        if database not in self._named:
            if not same:
                self._recognize(link)
            elif not _has_tables(link):
                raise StoreSchemaError("The store's tables are missing. Run the upgrade: `guard store upgrade`.")
            self._named.add(database)
        return SqlDoor(link, self._notify)

    def link(self, cursor: Cursor) -> CursorLink:
        """Such a cursor, as the statements see it."""
        return CursorLink(self._texts_of(self._own_dialect, "format"), cursor)

    def _texts_of(self, dialect: Dialect, paramstyle: str) -> Texts:
        """The texts for a kind of driver: made once, however many engines the caller makes."""
        kind: Any = type(dialect)
        if (kind, paramstyle) not in self._texts:
            self._texts[kind, paramstyle] = Texts(kind(paramstyle=paramstyle), callers=True)
        return self._texts[kind, paramstyle]

    def _recognize(self, link: Link) -> None:
        own = self._own_identity()
        name = link.texts.dialect.name
        found = [id for (id,) in link.rows(identity, {})] if _has_tables(link) else []
        if own not in found:
            raise WrongDatabaseError(
                f"The transaction is on a {name} database that is not the store's ({_named(found)}; the store is {own}). "
                "A job can only be accepted in a transaction on the store's own database: give that one, or none."
            )


def _has_tables(link: Link) -> bool:
    ((known,),) = link.rows(has_store, {}, link.texts.dialect.name)
    return bool(known)


def _named(found: list[str]) -> str:
    return f"it is store {found[0]}" if found else "it has no store's tables"


def _connection_of(transaction: object) -> Connection:
    if isinstance(transaction, scoped_session):
        transaction = transaction()
    if isinstance(transaction, Connection):
        return transaction
    if isinstance(transaction, Session):
        try:
            return transaction.connection()
        except UnboundExecutionError as error:
            raise WrongDatabaseError(
                "The session is bound to no single engine. Give the connection that is on the store's database: "
                "using(session.connection(bind_arguments={...}))."
            ) from error
    raise TypeError(
        f"Jobs cannot be enqueued through a {type(transaction).__name__}. Give a Session or a Connection of SQLAlchemy's (or their "
        "Async kinds), on the store's database: it is the transaction that they join."
    )


def _waits(transaction: object) -> bool:
    """Whether it is of SQLAlchemy's asyncio part. By name: that part cannot be imported without greenlet, which few need."""
    return any(kind.__module__.startswith("sqlalchemy.ext.asyncio") for kind in type(transaction).__mro__)
