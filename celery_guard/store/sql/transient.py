"""Which errors of a database pass by themselves. How often they are tried again is in :mod:`celery_guard.store.patience`.

A transient error is one after which the same transaction may succeed: a deadlock, a serialization failure, a lock that
took too long, a server that is restarting, a connection that went away. Every operation of the store is safe to repeat
as a whole, so a failed COMMIT is treated alike: what was written by it is recognized the second time.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from sqlalchemy.engine import Dialect
from sqlalchemy.exc import DBAPIError, InvalidRequestError
from sqlalchemy.exc import TimeoutError as PoolTimeoutError

from celery_guard.errors import COMMAND, KeyBusy, SettingError, StoreSchemaError, StoreUnavailableError

__all__ = ["driver_error", "explained", "is_disconnect", "is_transient"]

# PostgreSQL: serialization failure, deadlock, lock not available, too many connections, the server going down or up, a server that
# has become a standby, a statement that took too long.
_SQLSTATES = {"40001", "40P01", "55P03", "53300", "57P01", "57P02", "57P03", "57P05", "25006", "57014"}

# PostgreSQL: what was prepared is not there, or no longer fits the tables. On another connection it is prepared anew.
_OUTDATED = {"26000", "0A000"}

# MySQL, MariaDB: deadlock, lock wait timeout, record changed, too many connections, gone away and its relatives, read only.
_MYSQL = {
    1213,
    1205,
    1020,
    1040,
    1053,
    1152,
    1158,
    1159,
    1160,
    1161,
    1290,
    1836,
    1927,
    2002,
    2003,
    2006,
    2013,
    2055,
    4031,
}

_SQLITE = ("database is locked", "database table is locked", "database schema is locked")

# A table or a column that is not there.
_UNDEFINED = {"42P01", "42703", 1146, 1054}
_UNDEFINED_SQLITE = ("no such table", "no such column", "has no column named")

# Nobody is let in, and nobody will be a little later: wrong password, no such database, no such file, no rights.
_CLOSED = {1044, 1045, 1049, "42501", "unable to open database file"}


def driver_error(error: BaseException) -> BaseException:
    """The driver's own error, where SQLAlchemy has wrapped it."""
    return error.orig if isinstance(error, DBAPIError) and error.orig is not None else error


def is_disconnect(error: BaseException, dialect: Dialect, connection: Any = None) -> bool:
    """Whether the driver's ``connection`` is of no use any more."""
    if isinstance(error, DBAPIError) and error.connection_invalidated:
        return True
    found = driver_error(error)
    if not isinstance(found, dialect.loaded_dbapi.Error):
        return False
    return _sqlstate(found) in _OUTDATED or dialect.is_disconnect(found, connection, None)


def is_transient(error: BaseException, dialect: Dialect) -> bool:
    """Whether the same transaction may succeed a little later."""
    if isinstance(error, (KeyBusy, PoolTimeoutError)):
        return True
    found = driver_error(error)
    if not isinstance(found, dialect.loaded_dbapi.Error):
        return False
    return is_disconnect(error, dialect) or _RULES[dialect.name](found, dialect)


def explained(error: BaseException, dialect: Dialect) -> BaseException:
    """The error as the guard says it: tables that are missing or old, and a database that does not work, have names of their own.

    What is left is about the values or the statement; the callers that try it know them.
    """
    found = driver_error(error)
    if not isinstance(found, dialect.loaded_dbapi.Error):
        return _not_connected(error, dialect) or error
    codes, text = {_sqlstate(found), _number(found)}, str(found)
    if codes & _CLOSED:
        return StoreUnavailableError(f"The store cannot be opened: {text}. Check the setting store.")
    if codes & _UNDEFINED or (dialect.name == "sqlite" and any(words in text for words in _UNDEFINED_SQLITE)):
        return StoreSchemaError(
            f"The store's tables are missing or not those of this version ({text.splitlines()[0]}). "
            f"Run `{COMMAND} store upgrade`."
        )
    if isinstance(found, (dialect.loaded_dbapi.OperationalError, dialect.loaded_dbapi.InternalError)):
        return StoreUnavailableError(f"The store's database refused: {text}. The job's row says how far it is.")
    return error


def _not_connected(error: BaseException, dialect: Dialect) -> SettingError | None:
    """What SQLAlchemy or the driver says by an error that is none of the database's: it cannot be connected to like this."""
    text = str(error)
    if isinstance(error, InvalidRequestError) and "is not a MariaDB variant" in text:
        return SettingError(
            f"Setting store: the URL names MariaDB, and the server is MySQL ({text}). Write mysql+{dialect.driver}:// instead of "
            f"mariadb+{dialect.driver}://."
        )
    if isinstance(error, RuntimeError) and "'cryptography' package is required" in text:
        return SettingError(
            f"Setting store: MySQL takes no password of {dialect.driver} without TLS ({text}). Install what is missing: "
            "pip install 'celery-guard[mysql]'; or let the server speak TLS."
        )
    return None


def _sqlstate(error: BaseException) -> str | None:
    """The SQL standard's code, where the server came to say one. It names few of MySQL's errors."""
    state: str | None = getattr(error, "sqlstate", None) or getattr(error, "pgcode", None)
    return state


def _number(error: BaseException) -> Any:
    """MySQL's number of the error, or the words of SQLite's."""
    return error.args[0] if error.args else None


def _transient_postgresql(error: BaseException, dialect: Dialect) -> bool:
    state = _sqlstate(error)
    if state is not None:
        return state in _SQLSTATES or state.startswith("08")
    # Without a SQLSTATE the server never answered: refused, timed out, cut off.
    return isinstance(error, dialect.loaded_dbapi.OperationalError)


def _transient_mysql(error: BaseException, dialect: Dialect) -> bool:
    return _number(error) in _MYSQL


def _transient_sqlite(error: BaseException, dialect: Dialect) -> bool:
    return str(error).startswith(_SQLITE)


_RULES: dict[str, Callable[[BaseException, Dialect], bool]] = {
    "postgresql": _transient_postgresql,
    "mysql": _transient_mysql,
    "mariadb": _transient_mysql,
    "sqlite": _transient_sqlite,
}
