"""The database of a store, as one process sees it: its connections, and the four ways to work on one.

=============  ==============================================================================================
``quick``      statements on the driver's cursor, each committed by itself: one round trip is one transaction
``whole``      statements on the driver's cursor, in one transaction
``each``       statements on SQLAlchemy's connection, each committed by itself
``begin``      statements on SQLAlchemy's connection, in one transaction
=============  ==============================================================================================

Each repeats its work as a whole on a transient error (:mod:`.transient`), and tells the work that it is a repetition.
Connections are in autocommit and a transaction is begun by name, so a pooled connection carries no state at all.

Nothing is inherited across a fork: the first use in another process leaves every connection to the process that made it.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Hashable, Mapping
from typing import Any, TypeVar

from sqlalchemy import event
from sqlalchemy.engine import URL, Connection, Engine, ExceptionContext

from celery_guard.errors import GuardError
from celery_guard.store.patience import Patience

from .address import address, engine_at
from .dialects import traits_of
from .sessions import Sessions, Taken
from .silence import notice_silence
from .statement import CursorLink, Link, Texts
from .transient import explained, is_disconnect, is_transient

__all__ = ["Database"]

T = TypeVar("T")

#: The execution option of an engine that says how its transactions begin.
_BEGIN = "guard_begin"


class Database:
    """Opens nothing before its first use.

    Args:
        url: where it is.
        connect: the driver's arguments for each new connection, where they are somebody else's to say; the URL then only names driver
            and place.
        place: what tells one place from another, as ``connect`` would say it now. Once it changes, old connections are left.
    """

    def __init__(
        self,
        url: str,
        *,
        pool_size: int,
        pool_timeout: float,
        patience: Patience,
        connect: Callable[[], Mapping[str, Any]] | None = None,
        place: Callable[[], Hashable] | None = None,
    ) -> None:
        self.url = address(url)
        self._connect = connect
        self._place_of = place
        self.traits = traits_of(self.url.get_backend_name())
        self.patience = patience
        self._pool = {"poolclass": Sessions, "pool_size": pool_size, "pool_timeout": pool_timeout, "max_overflow": 0}
        # Transactions are ended where they are begun; a ROLLBACK for each return would be a round trip.
        self._engine = self._make_engine(own=True, pool_reset_on_return=None)
        self._writer = self._engine.execution_options(**{_BEGIN: self.traits.begin})
        # The transactions of bodies may be long: with a pool of their own, no claim, renewal or settle waits for one of them.
        self._bodies = self._make_engine(own=False).execution_options(**{_BEGIN: self.traits.begin_body})
        self.texts = Texts(self._engine.dialect)
        self._place = self._where()
        # Kept, so that they are never collected: closing them here would end the parent's sessions.
        self._inherited: list[object] = []
        self._forgets: list[Callable[[], None]] = []

    def _make_engine(self, *, own: bool, **options: Any) -> Engine:
        options = {**self._pool, **options, **self.traits.engine_options(self.url)}
        engine = engine_at(self.url, isolation_level="AUTOCOMMIT", **options)
        event.listen(engine, "connect", lambda connection, record: notice_silence(connection, self.url))
        event.listen(engine, "connect", lambda connection, record: self.traits.greet(connection, own))
        event.listen(engine, "begin", _begin)
        if own:
            event.listen(engine, "handle_error", _disconnected)
        if self._connect is not None:
            event.listen(engine, "do_connect", lambda *_: self.connect())
        return engine

    def connect(self, **defaults: Any) -> Any:
        """A new connection of the driver's, in nobody's pool; what the URL says wins over ``defaults``."""
        connection = self._connected(defaults)
        notice_silence(connection, self.url)
        return connection

    def _connected(self, defaults: Mapping[str, Any]) -> Any:
        dialect = self._engine.dialect
        own = self.traits.engine_options(self.url).get("connect_args", {})
        if self._connect is None:
            arguments, options = dialect.create_connect_args(self.url)
            return dialect.connect(*arguments, **{**defaults, **options, **own})
        # Where and as whom is said anew for each connection; the rest is what the dialect asks of any.
        _, options = dialect.create_connect_args(URL.create(self.url.drivername))
        return dialect.connect(**{**defaults, **options, **own, **self._connect()})

    @property
    def bodies(self) -> Engine:
        """The engine of the transactions of bodies in this process."""
        self.here()
        return self._bodies

    @property
    def engine(self) -> Engine:
        """The engine of this process; never used for anything that belongs to the caller."""
        self.here()
        return self._engine

    def here(self) -> None:
        """Leave what another process has opened, or what leads to another place, if this is not where the last call was."""
        if self._where() != self._place:
            self.forget()

    def _where(self) -> tuple[int, Hashable]:
        return os.getpid(), None if self._place_of is None else self._place_of()

    def on_forget(self, forget: Callable[[], None]) -> None:
        """Have something else forgotten together with the connections."""
        self._forgets.append(forget)

    def forget(self) -> None:
        """Leave every open connection to the process that made it."""
        self._place = self._where()
        for engine in (self._engine, self._bodies):
            self._inherited.append(engine.pool)
            engine.dispose(close=False)
        for forget in self._forgets:
            forget()

    def close(self) -> None:
        """Close the connections of this process that nobody works on."""
        self.here()
        for engine in (self._engine, self._bodies):
            engine.dispose()

    def quick(self, work: Callable[[Link, bool], T], patient: int = 1) -> T:
        """Run statements that are each a transaction; ``patient`` times as long as anything else on errors that pass."""
        return self.repeated(lambda again: self._on_cursor(work, again, None), patient)

    def whole(self, work: Callable[[Link, bool], T], patient: int = 1) -> T:
        """Run statements in one transaction on the driver's cursor."""
        return self.repeated(lambda again: self._on_cursor(work, again, self.traits.begin), patient)

    def begin(self, work: Callable[[Connection, bool], T]) -> T:
        """Run statements in one transaction on a connection of SQLAlchemy's."""

        def once(again: bool) -> T:
            self.here()
            return self._in_transaction(work, again)

        return self.repeated(once)

    def each(self, work: Callable[[Connection, bool], T]) -> T:
        """Run statements that are each a transaction on a connection of SQLAlchemy's."""

        def once(again: bool) -> T:
            with self.engine.connect() as connection:
                if not self._strict():
                    return work(connection, again)
            return self._in_transaction(work, again)

        return self.repeated(once)

    def repeated(self, work: Callable[[bool], T], patient: int = 1) -> T:
        """Run work on whatever connection it has, again as a whole while the driver's errors are transient."""
        dialect = self._engine.dialect
        return self.patience.run(work, self._passes, lambda error: explained(error, dialect), patient)

    def _passes(self, error: BaseException) -> bool:
        return is_transient(error, self._engine.dialect)

    def _strict(self) -> bool:
        """Whether a statement by itself would be a transaction under more than READ COMMITTED, since the server is set so: two that
        meet would fail instead of waiting. Known once there was a connection."""
        level = self._engine.dialect.default_isolation_level
        return self.traits.name == "postgresql" and level in ("SERIALIZABLE", "REPEATABLE READ")

    def _in_transaction(self, work: Callable[[Connection, bool], T], again: bool) -> T:
        with self._writer.connect() as connection:
            try:
                with connection.begin():
                    return work(connection, again)
            except BaseException:
                self._roll_back(connection)
                raise

    def _roll_back(self, connection: Connection) -> None:
        """A COMMIT that fails may leave its transaction open, and neither SQLAlchemy nor the pool looks."""
        if not connection.invalidated:
            try:
                connection.connection.rollback()
            except self._engine.dialect.loaded_dbapi.Error:
                connection.invalidate()

    def _on_cursor(self, work: Callable[[Link, bool], T], again: bool, begin: str | None) -> T:
        session = self._take()
        try:
            if begin is None and self._strict():
                begin = self.traits.begin
            link = session.link(self._link)
            if begin is not None:
                link.begin(begin)
            answer = work(link, again)
            if begin is not None:
                session.connection.commit()
        except BaseException as error:
            self._repair(session, error)
            raise
        finally:
            session.give_back()
        return answer

    def _link(self, connection: Any) -> CursorLink:
        return CursorLink(self.texts, self.traits.kept(connection.cursor()))

    def _take(self) -> Taken:
        pool = self.engine.pool
        assert isinstance(pool, Sessions)
        return pool.take()

    def _repair(self, session: Taken, error: BaseException) -> None:
        """Leave a session as it was before an error, or close its connection where it cannot be trusted any more."""
        dialect = self._engine.dialect
        if is_disconnect(error, dialect, session.connection):
            # The others in the pool have most likely gone the same way.
            session.invalidate(error)
            self._engine.dispose()
        elif isinstance(error, (dialect.loaded_dbapi.Error, GuardError)):
            try:
                session.connection.rollback()
            except dialect.loaded_dbapi.Error as failed:
                session.invalidate(failed)
        else:
            # An interruption may have struck between a question and its answer.
            session.invalidate(error)


def _disconnected(context: ExceptionContext) -> None:
    """SQLAlchemy throws the connection away where we would."""
    if is_disconnect(context.original_exception, context.dialect):
        context.is_disconnect = True


def _begin(connection: Connection) -> None:
    """Connections are in autocommit until a transaction is begun by name."""
    words = connection.get_execution_options().get(_BEGIN)
    if words is not None:
        connection.exec_driver_sql(words)
