"""The database's clock as an SQL expression, in microseconds since the epoch, the same in every statement.

No instant is ever computed by a worker: durations go in, and the database adds them to its own time. There are two
readings, because databases treat a clock that moves within a statement as unfit for searching an index:

``moment()``
    the time at which the row is written, after any wait for its lock. For compares and writes on one row.
``reading()``
    one reading a statement. For range searches (``due <= reading()``), which stay index scans with it.

SQLite's clock has milliseconds; the others have microseconds.
"""

from __future__ import annotations

from typing import Any

from sqlalchemy import BigInteger
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.compiler import SQLCompiler
from sqlalchemy.sql.functions import FunctionElement

__all__ = ["moment", "reading"]


class moment(FunctionElement[int]):
    """Now, as exactly as the database can say it."""

    type = BigInteger()
    inherit_cache = True


class reading(FunctionElement[int]):
    """Now, read once a statement."""

    type = BigInteger()
    inherit_cache = True


_POSTGRESQL = "CAST(EXTRACT(EPOCH FROM clock_timestamp()) * 1000000 AS BIGINT)"


@compiles(moment, "postgresql")
def _moment_postgresql(element: moment, compiler: SQLCompiler, **options: Any) -> str:
    return _POSTGRESQL


@compiles(reading, "postgresql")
def _reading_postgresql(element: reading, compiler: SQLCompiler, **options: Any) -> str:
    # As a sub-select it is evaluated once, before the scan, and so can bound it.
    return f"(SELECT {_POSTGRESQL})"


# SYSDATE is local to the session's zone and UTC_TIMESTAMP stands still in a statement: the first, less the zone's offset.
_MYSQL_MOMENT = (
    "(TIMESTAMPDIFF(MICROSECOND, '1970-01-01 00:00:00', SYSDATE(6))"
    " - TIMESTAMPDIFF(MICROSECOND, UTC_TIMESTAMP(6), NOW(6)))"
)
_MYSQL_READING = "TIMESTAMPDIFF(MICROSECOND, '1970-01-01 00:00:00', UTC_TIMESTAMP(6))"


@compiles(moment, "mysql", "mariadb")
def _moment_mysql(element: moment, compiler: SQLCompiler, **options: Any) -> str:
    return _MYSQL_MOMENT


@compiles(reading, "mysql", "mariadb")
def _reading_mysql(element: reading, compiler: SQLCompiler, **options: Any) -> str:
    return _MYSQL_READING


# Doubled below where the driver reads percent signs as its own.
_SQLITE = (
    "(CAST(strftime('%s', 'now') AS INTEGER) * 1000000 + CAST(substr(strftime('%f', 'now'), 4) AS INTEGER) * 1000)"
)


@compiles(moment, "sqlite")
@compiles(reading, "sqlite")
def _now_sqlite(element: moment | reading, compiler: SQLCompiler, **options: Any) -> str:
    return _SQLITE.replace("%", "%%") if compiler.preparer._double_percents else _SQLITE
