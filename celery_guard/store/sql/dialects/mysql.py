"""MySQL and MariaDB: no ``UPDATE .. RETURNING``, errors for duplicates, and READ COMMITTED for the store's own sessions.

Under the default, REPEATABLE READ, a search locks the gaps it has looked at, and two claims of different jobs deadlock.

A key that an open transaction is taking is not answered ``Busy`` at once: whoever wants it too waits for that transaction, at
most for the server's ``innodb_lock_wait_timeout``; in a transaction of its own that error is the caller's.
"""

from __future__ import annotations

from typing import Any

from sqlalchemy.engine import URL

from . import Traits

__all__ = ["TRAITS"]

_DUPLICATE_ENTRY = 1062
_SYNTAX_ERRORS = (1064, 1149)

#: How long a connection may take to be made, in seconds. mysqlclient's own default is for ever.
_CONNECT_TIMEOUT = 10

#: How long a statement of the store's own waits for a row before it is a transient error, in seconds.
_LOCK_WAIT = 3

#: Since 11.6.2 MariaDB undoes a transaction under REPEATABLE READ, the default of callers, that locks a row which is newer than what it has
#: seen. As before, and as on MySQL, to whom this is a comment, it is given the row.
_AS_THEY_ARE = "/*M!110602 SET STATEMENT innodb_snapshot_isolation = OFF FOR */ "


def _greet(connection: Any, own: bool) -> None:
    cursor = connection.cursor()
    try:
        cursor.execute("SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED")
        # Strict: a value that does not fit is an error, not a shorter value.
        cursor.execute("SET SESSION sql_mode = CONCAT(@@sql_mode, ',STRICT_TRANS_TABLES')")
        if own:
            cursor.execute(f"SET SESSION innodb_lock_wait_timeout = {_LOCK_WAIT}")
    finally:
        cursor.close()


def _number(error: BaseException) -> object:
    """The server's number of an error, wrapped by SQLAlchemy or not."""
    found = getattr(error, "orig", None) or error
    return found.args[0] if found.args else None


def _is_duplicate(error: BaseException) -> bool:
    return _number(error) == _DUPLICATE_ENTRY


def _is_syntax_error(error: BaseException) -> bool:
    return _number(error) in _SYNTAX_ERRORS


def _engine_options(url: URL) -> dict[str, Any]:
    # Servers close idle connections; none is used for longer than half an hour.
    options: dict[str, Any] = {"pool_recycle": 1800}
    if url.get_driver_name() in ("pymysql", "mysqldb") and "connect_timeout" not in url.query:
        options["connect_args"] = {"connect_timeout": _CONNECT_TIMEOUT}
    return options


TRAITS = Traits(
    name="mysql",
    begin="START TRANSACTION",
    begin_body="START TRANSACTION",
    one_statement=False,
    returning=False,
    skip_locked=None,
    greet=_greet,
    is_duplicate=_is_duplicate,
    is_syntax_error=_is_syntax_error,
    engine_options=_engine_options,
    as_they_are=_AS_THEY_ARE,
)
