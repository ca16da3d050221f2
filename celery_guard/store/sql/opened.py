"""What an open store is: its connections, its doors, its bell, and its tables' version. No job is touched here."""

from __future__ import annotations

import logging
from collections.abc import Callable, Hashable, Mapping
from datetime import timedelta
from typing import Any, TypeVar

from sqlalchemy.engine import Connection
from sqlalchemy.exc import DBAPIError

from celery_guard.errors import StoreError, StoreSchemaError
from celery_guard.job.settlement import Settlement
from celery_guard.store.patience import Patience

from . import run, schema
from .address import in_memory
from .database import Database
from .doors import Doors
from .statements import accept as accept_statements
from .statements import run as run_statements
from .wake import Bell, PostgresBell

__all__ = ["OpenStore"]

logger = logging.getLogger("celery_guard.store")

T = TypeVar("T")


class OpenStore:
    """The part of a store that its journeys stand on.

    Args:
        url: SQLAlchemy's URL of the database.
        notify: wake relays with NOTIFY, where the database is PostgreSQL.
        pool_size: connections that this process has open at most, besides the one that listens.
        pool_timeout: how long to wait for one of them, in seconds.
        patience: how often and how long an operation is repeated on transient errors.
        connect, place: how and where to connect, where that is not the URL's to say; see :class:`.database.Database`.
    """

    def __init__(
        self,
        url: str,
        *,
        notify: bool = True,
        pool_size: int = 5,
        pool_timeout: float = 10,
        patience: Patience | None = None,
        connect: Callable[[], Mapping[str, Any]] | None = None,
        place: Callable[[], Hashable] | None = None,
    ) -> None:
        self._database = Database(
            url,
            pool_size=pool_size,
            pool_timeout=pool_timeout,
            patience=patience or Patience(),
            connect=connect,
            place=place,
        )
        self._traits = self._database.traits
        engine = self._database.engine
        self._notify = notify and self._traits.name == "postgresql"
        self._bell = self._hang_bell()
        self._database.on_forget(self._bell.forget)
        self._identity: str | None = None
        self._database.on_forget(self._forget_identity)
        self._skip_locked = self._traits.skip_locked
        self._doors = Doors(engine.dialect, self._own_identity, self._notify)

    def _hang_bell(self) -> Bell:
        dialect = self._database.engine.dialect
        if self._notify and dialect.driver == "psycopg":
            return PostgresBell(self._database.connect, dialect.loaded_dbapi.Error)
        return Bell()

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._database.url.render_as_string(hide_password=True)!r})"

    def upgrade(self) -> None:
        """Bring the tables to this version."""
        # MySQL commits every table as it is made.
        ways = self._database.each if self._traits.name == "mysql" else self._database.begin
        ways(lambda connection, again: schema.upgrade(connection))

    def upgrade_sql(self) -> str:
        """The statements that :meth:`upgrade` would run, as text."""
        if self._traits.name == "mysql":
            # Which server it is, MySQL or MariaDB, decides about a word, and only the server can tell.
            return self._database.each(lambda connection, again: schema.upgrade_sql(connection.dialect))
        return schema.upgrade_sql(self._database.engine.dialect)

    def check(self) -> None:
        """Raise ``StoreSchemaError`` unless the tables are those of this version."""
        self._database.each(lambda connection, again: schema.check(connection))

    def server(self) -> Mapping[str, str | None]:
        """Nothing: an SQL database keeps what was committed."""
        return {}

    def forget_connections(self) -> None:
        """Called in a new process after fork: drop every inherited connection without closing it for the parent."""
        self._database.forget()

    def close(self) -> None:
        """Close what this process holds open."""
        self._database.close()
        self._bell.close()

    @property
    def limits(self) -> Mapping[str, Any]:
        """What this store cannot keep, by guarantee: all of them, on a database that outlives the process."""
        if not in_memory(self._database.url):
            return {}
        return {
            "G1": "the database is in memory: every job is gone with the process",
            "G5": "a database in memory is one connection, which a body's transaction would keep from everybody else",
        }

    def wait(self, timeout: timedelta) -> bool:
        """Wait until the store hints at new work or the time is over."""
        self._database.here()
        return self._bell.wait(timeout)

    def wake(self) -> None:
        """End a :meth:`wait` of this process now."""
        self._database.here()
        self._bell.ring()

    @property
    def kind(self) -> str:
        """Which database it is: ``postgresql``, ``mysql`` (also MariaDB) or ``sqlite``."""
        return self._traits.name

    def _forget_identity(self) -> None:
        self._identity = None

    def _own_identity(self) -> str:
        if self._identity is None:
            found = self._database.quick(lambda link, again: link.rows(accept_statements.identity, {}))
            if not found:
                raise StoreSchemaError("The store's tables are empty: guard_store has lost its row.")
            self._identity = found[0][0]
        return self._identity

    def _settled(self, settlement: Settlement, moved: run.Move) -> None:
        if moved is run.Move.AWAITED:
            self._release(settlement.id)
        elif settlement.follow:
            self._bell.ring()

    def _release(self, id: str) -> None:
        """Bring back those who waited for the outcome. Were this forgotten, a relay would find them a minute later."""
        self._hint(lambda: self._database.quick(lambda link, again: link.changed(run_statements.release, {"id_": id})))
        self._ring()

    def _ring(self) -> None:
        if self._notify:
            self._hint(lambda: self._database.quick(lambda link, again: link.rows(accept_statements.call, {})))
        self._bell.ring()

    def _hint(self, give: Callable[[], object]) -> None:
        """Best effort: what came before is committed, and must not look as if it had failed."""
        try:
            give()
        except StoreError as error:
            logger.warning("the relay was not told at once, it finds out by itself: %s", error)

    def _passing_locked(self, work: Callable[[Connection, bool], T]) -> T:
        """Run work that passes over rows others have locked, where the server can; the first time finds out."""
        if self._skip_locked is None:
            try:
                found = self._database.begin(lambda connection, again: work(connection, True))
            except DBAPIError as error:
                if not self._traits.is_syntax_error(error):
                    raise
                self._skip_locked = False
            else:
                self._skip_locked = True
                return found
        skip_locked = self._skip_locked
        return self._database.begin(lambda connection, again: work(connection, skip_locked))
