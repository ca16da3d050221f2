"""A body's own transaction on Django's connection: its ORM writes, the jobs it enqueues and its job's end commit together.

::

    the body:   with job.transaction():  (a savepoint)      charge.delay()      returns
    the guard:  atomic(), outermost                                                      commit: compare and move the job's row,
                                                                                         leave atomic(), which commits

The outermost ``atomic()`` is the guard's: entered when the body first asks for its transaction, left when the body has returned and
its job's row was moved on the same connection. The move is refused when the attempt does not own the job any more, and then all is
rolled back. Hooks of ``transaction.on_commit`` run after it, as ever; the job has succeeded by then, whatever they do.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

from django.db import Error, connections, transaction

from celery_guard.errors import StoreUnavailableError
from celery_guard.job.settlement import Settlement
from celery_guard.store.sql.doors import SqlDoor
from celery_guard.store.sql.run import Move

from .door import is_open

__all__ = ["DjangoSavepoint", "DjangoTransaction"]

logger = logging.getLogger("celery_guard.store")


class _Block:
    """An ``atomic()`` of the guard's on Django's connection, entered here and left by ``commit`` or ``rollback``."""

    def __init__(self, alias: str, door: Callable[[Any], SqlDoor | None]) -> None:
        self._alias = alias
        self._connection = connections[alias]
        self._open_door = door
        self._ended = False
        self._atomic = transaction.atomic(using=alias)

    @property
    def session(self) -> Any:
        """``atomic()`` inside the transaction: a block of its own that an error undoes, and that commits nothing by itself."""
        return transaction.atomic(using=self._alias)

    @property
    def door(self) -> SqlDoor:
        """Through which the jobs that the body enqueues join in."""
        door = self._open_door(self._connection)
        assert door is not None
        return door

    def rollback(self) -> None:
        """Undo what the body wrote. Never raises: what cannot be undone by a word is undone by hanging up."""
        if self._ended:
            return
        self._ended = True
        try:
            self._stay_in_thread()
            self._connection.set_rollback(True)
            self._atomic.__exit__(None, None, None)
        except (Error, RuntimeError) as error:
            logger.warning("a body's transaction is ended by closing its connection: %s", error)
            self._hang_up()

    def _stay_in_thread(self) -> None:
        """Django's connections belong to a thread each."""
        if connections[self._alias] is not self._connection:
            raise RuntimeError(
                "job.transaction() was begun in another thread than the body's: ask for it in the body's own."
            )

    def _hang_up(self) -> None:
        inner = self._connection.connection
        if inner is not None:
            inner.close()


class DjangoTransaction(_Block):
    """One body's transaction, begun when it is asked for.

    Raises:
        RuntimeError: the connection is in a transaction already, whose end would not be the guard's to decide.
    """

    def __init__(
        self,
        alias: str,
        door: Callable[[Any], SqlDoor | None],
        passes: Callable[[BaseException], bool],
        committed: Callable[[Settlement, Move], None],
    ) -> None:
        super().__init__(alias, door)
        self._passes = passes
        self._committed = committed
        self._is_committed = False
        if is_open(self._connection):
            raise RuntimeError(
                f"job.transaction() inside a transaction that is open on {alias!r} already: it commits together with the job, when the "
                "body has returned. Ask for it outside of atomic(), which may then be used inside it."
            )
        self._atomic.__enter__()
        try:
            # The first hook of all: after it has run there is nothing to undo any more.
            self._connection.on_commit(self._note_commit)
            if self._connection.vendor == "postgresql":
                # Under a stricter one, every renewal of the lease would be a conflict with the move at the end.
                with self._connection.cursor() as cursor:
                    cursor.execute("SET TRANSACTION ISOLATION LEVEL READ COMMITTED")
        except BaseException:
            # Nobody holds this yet, so nobody else would leave the block that was entered.
            self.rollback()
            raise

    def commit(self, settlement: Settlement) -> bool:
        """Settle and commit, as one; False, and everything rolled back, when the attempt is not the owner any more.

        Raises:
            StoreUnavailableError: a deadlock, a serialization failure, or the connection was lost while the commit was on its way.
        """
        try:
            self._stay_in_thread()
            moved = self.door.move(settlement)
            if moved is Move.REFUSED:
                self.rollback()
                return False
            self._leave()
        except Error as error:
            self.rollback()
            if not self._passes(error):
                raise
            raise StoreUnavailableError(
                f"A body's transaction could not be committed, or nobody knows whether it was: {error}. "
                "Nothing more is written; when the lease ends the job's row tells."
            ) from error
        except BaseException:
            self.rollback()
            raise
        self._committed(settlement, moved)
        return True

    def _leave(self) -> None:
        self._ended = True
        try:
            self._atomic.__exit__(None, None, None)
        except Exception:
            if not self._is_committed:
                raise
            logger.exception("a job has committed, and then a hook of transaction.on_commit in its body failed")
        if not self._is_committed:
            raise StoreUnavailableError("A body's transaction was left without a commit: its connection was closed.")

    def _note_commit(self) -> None:
        self._is_committed = True


class DjangoSavepoint(_Block):
    """The same inside a transaction of the caller's, for a job that is run eagerly there: the caller's end decides about all of it."""

    def __init__(self, alias: str, door: Callable[[Any], SqlDoor | None]) -> None:
        super().__init__(alias, door)
        self._atomic.__enter__()

    def commit(self, settlement: Settlement) -> bool:
        """Settle, and keep what the body wrote for the caller's commit. What the database says is raised as it is."""
        try:
            self._stay_in_thread()
            settled = self.door.settle(settlement)
        except BaseException:
            self.rollback()
            raise
        if not settled:
            self.rollback()
            return False
        self._ended = True
        self._atomic.__exit__(None, None, None)
        return True
