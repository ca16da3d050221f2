"""The database's clock as an SQL expression, in microseconds since the epoch, the same in every statement.

No instant is ever computed by a worker: durations go in, and the database adds them to its own time.

The clock is read once a statement, when it starts, so that instants written together agree to the microsecond, and ``due <= now()``
stays a search of an index; databases treat a clock that moves within a statement as unfit for that. A statement that has waited for a
row reads an earlier time than it writes at. That errs to the safe side: a lease ends a little early, nothing lapses early.

SQLite's clock has milliseconds; the others have microseconds.
"""

from __future__ import annotations

from typing import Any

from sqlalchemy import BigInteger
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.compiler import SQLCompiler
from sqlalchemy.sql.functions import FunctionElement

__all__ = ["now"]


class now(FunctionElement[int]):
    """Now, by the database's clock."""

    type = BigInteger()
    inherit_cache = True


@compiles(now, "postgresql")
def _postgresql(element: now, compiler: SQLCompiler, **options: Any) -> str:
    # Not now(): that is when the transaction began, and the caller's may be long.
    return "CAST(EXTRACT(EPOCH FROM statement_timestamp()) * 1000000 AS BIGINT)"


@compiles(now, "mysql", "mariadb")
def _mysql(element: now, compiler: SQLCompiler, **options: Any) -> str:
    # Not UNIX_TIMESTAMP(): it reads the session's zone, which repeats an hour every autumn.
    return "TIMESTAMPDIFF(MICROSECOND, '1970-01-01 00:00:00', UTC_TIMESTAMP(6))"


@compiles(now, "sqlite")
def _sqlite(element: now, compiler: SQLCompiler, **options: Any) -> str:
    seconds = "CAST(strftime('%s', 'now') AS INTEGER)"
    milliseconds = "CAST(substr(strftime('%f', 'now'), 4) AS INTEGER)"
    expression = f"({seconds} * 1000000 + {milliseconds} * 1000)"
    # Doubled where the driver reads percent signs as its own.
    return expression.replace("%", "%%") if compiler.preparer._double_percents else expression
