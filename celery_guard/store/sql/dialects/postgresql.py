"""PostgreSQL: several tables in one statement, locked rows passed over, and a wake-up call."""

from __future__ import annotations

import socket
from typing import Any

from sqlalchemy.engine import URL

from celery_guard.store.sql.borrow import borrowed

from . import Traits

__all__ = ["TRAITS"]

#: How long a connection may take to be made, in seconds.
_CONNECT_TIMEOUT = 10


#: How often psycopg runs a statement before it has the server prepare it.
_PREPARE_AFTER = 5

#: Whether the session is this connection's alone: its process is the one that was connected to, and it sees this very socket at its other end.
_OWN = (
    "SELECT pg_backend_pid() = %s AND (host(inet_client_addr()), inet_client_port()) IS NOT DISTINCT FROM (%s, %s::int)"
)

#: Only on such a session. A plan that is made for a small table is kept while the table grows, so it must not be one that reads all of it.
#: Where there is no other, that plan counts as very expensive, and would be compiled for a fifth of a second.
_SETTLE_IN = (
    f"SELECT CASE WHEN ({_OWN}) THEN set_config('enable_seqscan', 'off', false) || set_config('jit', 'off', false) END"
)


def _greet(connection: Any, own: bool) -> None:
    """Have the store's own statements prepared, which spares the server more than half of its work on them.

    Not behind a pooler, which may give every transaction another session: nothing may be left on one, and a statement that another client has
    prepared there under the same name would be run in place of ours. PgBouncer is known by the process, which it makes up; one that passes on the real
    one by the socket, which is the pooler's own. A proxy that pools nothing cannot be told from one that does: nothing is prepared there either.
    """
    if own and hasattr(connection, "prepare_threshold"):
        here = (connection.info.backend_pid, *_local_end(connection))
        (settled,) = connection.execute(_SETTLE_IN, here).fetchone()
        if settled is not None:
            connection.prepare_threshold = _PREPARE_AFTER


def _kept(cursor: Any) -> Any:
    """One that goes the short way to what is prepared, unless somebody who watches psycopg has given it cursors of their own."""
    if getattr(cursor.connection, "prepare_threshold", None) is None:
        return cursor
    from psycopg import Cursor

    from .prepared import PreparedCursor

    return PreparedCursor(cursor.connection) if type(cursor) is Cursor else cursor


def _local_end(connection: Any) -> tuple[str | None, int | None]:
    """Address and port of this end, as the server has to see them; none on a socket that has none."""
    with borrowed(connection.fileno()) as end:
        if end.family not in (socket.AF_INET, socket.AF_INET6):
            return None, None
        address, port = end.getsockname()[:2]
        return address, port


def _is_duplicate(error: BaseException) -> bool:
    return (getattr(error, "sqlstate", None) or getattr(error, "pgcode", None)) == "23505"


def _is_syntax_error(error: BaseException) -> bool:
    return False


def _engine_options(url: URL) -> dict[str, Any]:
    if url.get_driver_name() not in ("psycopg", "psycopg2"):
        return {}
    # libpq's own default is to wait for as long as the network does, which may be minutes. The URL may say otherwise.
    arguments: dict[str, Any] = {} if "connect_timeout" in url.query else {"connect_timeout": _CONNECT_TIMEOUT}
    if url.get_driver_name() == "psycopg":
        # Prepared statements belong to a session, and a transaction pooler hands sessions around; see _greet().
        arguments["prepare_threshold"] = None
    # Spares each new connection a question about a type that no column has.
    return {"connect_args": arguments, "use_native_hstore": False}


TRAITS = Traits(
    name="postgresql",
    begin="BEGIN ISOLATION LEVEL READ COMMITTED",
    begin_body="BEGIN ISOLATION LEVEL READ COMMITTED",
    one_statement=True,
    returning=True,
    skip_locked=True,
    greet=_greet,
    is_duplicate=_is_duplicate,
    is_syntax_error=_is_syntax_error,
    engine_options=_engine_options,
    kept=_kept,
)
