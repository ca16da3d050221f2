"""Doors into transactions of SQLAlchemy's asyncio part.

Waiting for the database there takes ``await``, or one of SQLAlchemy's greenlets (``session.run_sync(...)``). Inside such a
greenlet a job is written at once, as through any door. Outside it goes into the transaction's :class:`~.buffer.Buffer`, which
the events of the session, or of the connection, have written before COMMIT: a commit always runs in a greenlet.

A session sets its savepoints late, when its connection is first used inside them, so a session is listened to as a session; a
connection of nobody's is listened to as a connection.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol, TypeVar
from weakref import WeakKeyDictionary

from sqlalchemy import event
from sqlalchemy.engine import Connection
from sqlalchemy.exc import UnboundExecutionError
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncSession, async_scoped_session
from sqlalchemy.orm import Session, SessionTransaction
from sqlalchemy.sql.elements import SavepointClause
from sqlalchemy.util.concurrency import greenlet_spawn, in_greenlet

from celery_guard.errors import TransactionError, WrongDatabaseError
from celery_guard.job.row import NewJob
from celery_guard.job.verdict import Enqueued
from celery_guard.store.protocol import Door

from .buffer import Buffer

__all__ = ["AsyncDoors", "AsyncSqlDoor"]

T = TypeVar("T")

#: Drivers that were tried, by SQLAlchemy's names. aiomysql cannot send bytes since PyMySQL 1.2.
_DRIVERS = {
    "postgresql": ("psycopg", "psycopg_async", "asyncpg"),
    "mysql": ("asyncmy",),
    "mariadb": ("asyncmy",),
    "sqlite": ("aiosqlite",),
}


class Opens(Protocol):
    """Opens the door for a session or a connection that waits by itself."""

    def __call__(self, transaction: Session | Connection, /) -> Door: ...


class AsyncSqlDoor:
    """One transaction of the caller's."""

    def __init__(self, transaction: Session | Connection, buffer: Buffer, open: Opens) -> None:
        self._transaction = transaction
        self._buffer = buffer
        self._open = open

    def enqueue(self, jobs: Sequence[NewJob]) -> list[Enqueued]:
        """Write the rows, where that can be waited for here; else have them written before the commit.

        Raises:
            TransactionError: a connection has no transaction, or the session is being committed.
        """
        if in_greenlet():
            return self._open(self._transaction).enqueue(jobs)
        _begin(self._transaction)
        return self._buffer.add(jobs)

    async def aenqueue(self, jobs: Sequence[NewJob]) -> list[Enqueued]:
        """Write the rows now."""
        return await greenlet_spawn(lambda: self._open(self._transaction).enqueue(jobs))

    def at_once(self) -> Door:
        """The door that writes at once. Raises ``TransactionError`` outside a greenlet of SQLAlchemy's."""
        if not in_greenlet():
            raise TransactionError(
                "A job cannot run eagerly here, where nobody can wait for the database: use `await task.adelay(...)`, or "
                "`await session.run_sync(...)`."
            )
        return self._open(self._transaction)

    async def recognize(self) -> None:
        """Look whether this is the store's database. Raises ``WrongDatabaseError``."""
        await greenlet_spawn(self._open, self._transaction)

    async def run(self, work: Callable[[], T]) -> T:
        """Run ``work`` in a greenlet of SQLAlchemy's."""
        return await greenlet_spawn(work)


class AsyncDoors:
    """Opens them, and keeps the buffer of each session and connection."""

    def __init__(self, own_dialect: str, open: Opens) -> None:
        self._own_dialect = own_dialect
        self._open = open
        self._buffers: WeakKeyDictionary[Session | Connection, Buffer] = WeakKeyDictionary()

    def open(self, transaction: object) -> AsyncSqlDoor | None:
        """The door for an ``AsyncSession`` or an ``AsyncConnection``; None for anything else. Asks the database nothing.

        Raises:
            TransactionError: the guard does not know the driver.
            WrongDatabaseError: it is another kind of database than the store's, or a session is bound to no single engine.
        """
        if isinstance(transaction, async_scoped_session):
            transaction = transaction()
        if isinstance(transaction, AsyncSession):
            session = transaction.sync_session
            self._check_driver(_bind_of(session).dialect)
            return AsyncSqlDoor(session, self._buffer_of(session, _listen_to_session), self._open)
        if isinstance(transaction, AsyncConnection):
            if transaction.sync_connection is None:
                raise TransactionError(
                    "The AsyncConnection is not connected yet: use it as `async with engine.begin() as connection`."
                )
            connection = transaction.sync_connection
            self._check_driver(connection.dialect)
            return AsyncSqlDoor(connection, self._buffer_of(connection, _listen_to_connection), self._open)
        return None

    def _buffer_of(self, transaction: Any, listen: Callable[[Any, Buffer, Opens], None]) -> Buffer:
        buffer = self._buffers.get(transaction)
        if buffer is None:
            buffer = self._buffers[transaction] = Buffer()
            listen(transaction, buffer, self._open)
        return buffer

    def _check_driver(self, dialect: Any) -> None:
        if dialect.name != self._own_dialect and {dialect.name, self._own_dialect} != {"mysql", "mariadb"}:
            raise WrongDatabaseError(
                f"The transaction is on a {dialect.name} database, the store on {self._own_dialect}. A job can only be accepted in "
                "a transaction on the store's own database: give that one, or none."
            )
        known = _DRIVERS[dialect.name]
        if dialect.driver not in known:
            raise TransactionError(
                f"Jobs cannot be enqueued through the driver {dialect.driver!r} of {dialect.name}; they can through {', '.join(known)}. "
                "Use one of them, or enqueue without a transaction: await task.adelay(...)."
            )


def _bind_of(session: Session) -> Any:
    try:
        return session.get_bind()
    except UnboundExecutionError as error:
        raise WrongDatabaseError(
            "The session is bound to no single engine. Give the connection that is on the store's database: "
            "using(await session.connection(bind_arguments={...}))."
        ) from error


def _begin(transaction: Session | Connection) -> None:
    """Jobs belong to a transaction: a session begins one by itself, as it always does; for a connection that takes a wait."""
    if transaction.in_transaction():
        return
    if isinstance(transaction, Connection):
        raise TransactionError(
            "The AsyncConnection has no transaction, so nothing would ever be committed. Begin one "
            "(`async with connection.begin()`, `async with engine.begin() as connection`), or use `await task.adelay(...)`."
        )
    transaction.begin()


def _listen_to_session(session: Session, buffer: Buffer, open: Opens) -> None:
    committed: set[SessionTransaction] = set()

    def before_commit(session: Session) -> None:
        buffer.write(_Late(open, session))

    def after_commit(session: Session) -> None:
        ending = session.get_nested_transaction() or session.get_transaction()
        if ending is not None:
            committed.add(ending)

    def after_transaction_create(session: Session, transaction: SessionTransaction) -> None:
        if transaction.nested:
            buffer.mark(transaction)

    def after_transaction_end(session: Session, transaction: SessionTransaction) -> None:
        done = transaction in committed
        committed.discard(transaction)
        if transaction.parent is None:
            buffer.ended()
        elif transaction.nested and done:
            buffer.released(transaction)
        elif transaction.nested:
            buffer.rolled_back(transaction)

    event.listen(session, "before_commit", before_commit)
    event.listen(session, "after_commit", after_commit)
    event.listen(session, "after_transaction_create", after_transaction_create)
    event.listen(session, "after_transaction_end", after_transaction_end)


def _listen_to_connection(connection: Connection, buffer: Buffer, open: Opens) -> None:
    """Written at COMMIT only: a savepoint whose RELEASE is refused stays open, and what was done in it would be committed."""

    def begin(connection: Connection) -> None:
        buffer.ended()

    def before_execute(connection: Connection, clause: object, *more: object) -> None:
        # the event of a new savepoint comes before it has a name
        if isinstance(clause, SavepointClause):
            buffer.mark(clause.ident)

    def release_savepoint(connection: Connection, name: str, context: None) -> None:
        buffer.released(name)

    def rollback_savepoint(connection: Connection, name: str, context: None) -> None:
        buffer.rolled_back(name)

    def commit(connection: Connection) -> None:
        try:
            buffer.write(_Late(open, connection))
        except BaseException:
            # to SQLAlchemy a transaction whose COMMIT has failed is over, so it would never roll it back
            if not connection.invalidated:
                connection.dialect.do_rollback(connection.connection)
            raise

    def rollback(connection: Connection) -> None:
        buffer.ended()

    event.listen(connection, "begin", begin)
    event.listen(connection, "before_execute", before_execute)
    event.listen(connection, "release_savepoint", release_savepoint)
    event.listen(connection, "rollback_savepoint", rollback_savepoint)
    event.listen(connection, "commit", commit)
    event.listen(connection, "rollback", rollback)


class _Late:
    """A door that looks at its database only if there is something to write."""

    def __init__(self, open: Opens, transaction: Session | Connection) -> None:
        self._open = open
        self._transaction = transaction

    def enqueue(self, jobs: Sequence[NewJob]) -> list[Enqueued]:
        """Write the rows."""
        return self._open(self._transaction).enqueue(jobs)
