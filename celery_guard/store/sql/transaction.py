"""Transactions of bodies: what a body writes, the jobs it enqueues and its job's end commit together.

::

    the body:   session.execute(...)      door.enqueue(...)      returns
    the guard:                                                            commit(settlement): flush, compare and move
                                                                          the job's row, COMMIT

The move is refused when the attempt does not own the job any more, and then everything is rolled back. So of two attempts that
both believe they own the job, the writes of at most one are kept. The isolation is READ COMMITTED: under a stricter one
every renewal of the lease would be a conflict with the move at the end.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from sqlalchemy import event
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.orm import Session

from celery_guard.errors import StoreUnavailableError
from celery_guard.job.settlement import Settlement

from .doors import SqlDoor
from .run import Move, settle
from .statement import ConnectionLink, Texts
from .transient import is_transient

__all__ = ["BodySession", "SqlTransaction"]

logger = logging.getLogger("celery_guard.store")


class BodySession(Session):
    """The session of a body. Closing it, or leaving it as a context, does nothing: it is the guard's to end."""

    ended_by_guard = False

    def close(self) -> None:
        if self.ended_by_guard:
            super().close()


class _DoorInside(SqlDoor):
    """A door into a transaction that was begun by name: SQLAlchemy takes its connection for one that commits by itself."""

    @property
    def commits_at_once(self) -> bool:
        return False


class SqlTransaction:
    """One body's transaction, begun with its first statement."""

    def __init__(
        self, session: BodySession, texts: Texts, notify: bool, committed: Callable[[Settlement, Move], None]
    ) -> None:
        self._session = session
        self._texts = texts
        self._notify = notify
        self._committed = committed
        self._committing = False
        event.listen(session, "before_commit", self._refuse_commit)

    @property
    def session(self) -> Session:
        """What the body writes with. Savepoints are the body's own; the commit is not."""
        return self._session

    @property
    def door(self) -> SqlDoor:
        """Through which the jobs that the body enqueues join in."""
        return _DoorInside(self._link(), self._notify)

    def commit(self, settlement: Settlement) -> bool:
        """Settle and commit, as one; False, and everything rolled back, when the attempt is not the owner any more.

        Raises:
            StoreUnavailableError: a deadlock, a serialization failure, or the connection was lost, while the commit was on its
                way: then it may have happened or not.
        """
        try:
            self._session.flush()
            moved = self._settle(settlement)
        except BaseException:
            self.rollback()
            raise
        if moved is Move.REFUSED:
            self.rollback()
            return False
        self._end()
        self._committed(settlement, moved)
        return True

    def _settle(self, settlement: Settlement) -> Move:
        """Move the row and commit. What the database cannot do now is no failure of the body: the job is unfinished."""
        try:
            moved = settle(self._link(), settlement, notify=self._notify)
            if moved is not Move.REFUSED:
                self._committing = True
                self._session.commit()
        except SQLAlchemyError as error:
            if not is_transient(error, self._texts.dialect):
                raise
            raise StoreUnavailableError(
                f"A body's transaction could not be committed, or nobody knows whether it was: {error}. "
                "Nothing more is written; when the lease ends the job's row tells."
            ) from error
        finally:
            self._committing = False
        return moved

    def rollback(self) -> None:
        """Undo what the body wrote. Never raises: what cannot be undone by a word is undone by hanging up."""
        try:
            self._session.rollback()
            self._end()
        except SQLAlchemyError as error:
            logger.warning("a body's transaction is ended by closing its connection: %s", error)
            self._session.invalidate()

    def _end(self) -> None:
        self._session.ended_by_guard = True
        self._session.close()

    def _link(self) -> ConnectionLink:
        return ConnectionLink(self._texts, self._session.connection)

    def _refuse_commit(self, session: Session) -> None:
        if not self._committing and not session.in_nested_transaction():
            raise RuntimeError(
                "session.commit() inside job.transaction(): the body's writes commit together with its job, when the body "
                "has returned. Use session.begin_nested() for a savepoint, or another session for writes of their own."
            )
