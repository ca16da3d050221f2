"""Which errors pass by themselves, and how often they are tried again."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Callable
from typing import Any

import psycopg
import pymysql
import pytest
from sqlalchemy import Dialect
from sqlalchemy.dialects.mysql.pymysql import MySQLDialect_pymysql
from sqlalchemy.dialects.postgresql.psycopg import PGDialect_psycopg
from sqlalchemy.dialects.sqlite.pysqlite import SQLiteDialect_pysqlite
from sqlalchemy.exc import DBAPIError, InvalidRequestError

from celery_guard.errors import KeyBusy, SettingError, StoreSchemaError, StoreUnavailableError
from celery_guard.store.patience import Patience
from celery_guard.store.sql.transient import explained, is_transient

POSTGRESQL: Dialect = PGDialect_psycopg(dbapi=psycopg)  # type: ignore[no-untyped-call]
MARIADB = MySQLDialect_pymysql(dbapi=pymysql)
SQLITE = SQLiteDialect_pysqlite(dbapi=sqlite3)


def _pg(state: str) -> Exception:
    kind: type[Exception] = psycopg.errors.lookup(state)
    return kind("said the server")


def _passes(error: BaseException) -> bool:
    return is_transient(error, POSTGRESQL)


def _my(number: int) -> Exception:
    error: Exception = pymysql.err.OperationalError(number, "said the server", sqlstate="HY000")
    return error


_PASSING: list[tuple[Dialect, Exception]] = [
    *(
        (POSTGRESQL, _pg(state))
        for state in ("40001", "40P01", "55P03", "57P01", "57P03", "08006", "53300", "25006", "57014", "26000", "0A000")
    ),
    (POSTGRESQL, psycopg.OperationalError("connection refused")),
    *((MARIADB, _my(number)) for number in (1213, 1205, 1020, 2002, 2003, 2006, 2013, 4031, 1290)),
    (MARIADB, pymysql.err.InterfaceError(0, "")),
    (SQLITE, sqlite3.OperationalError("database is locked")),
]

_LASTING: list[tuple[Dialect, Exception]] = [
    *((POSTGRESQL, _pg(state)) for state in ("23505", "42P01", "22001", "42501")),
    *((MARIADB, _my(number)) for number in (1062, 1146, 1406, 1064)),
    (SQLITE, sqlite3.IntegrityError("UNIQUE constraint failed: guard_job.id")),
    (SQLITE, sqlite3.OperationalError("no such table: guard_job")),
    (SQLITE, ValueError("database is locked")),
]


def _named(value: object) -> str:
    return f"{type(value).__name__} {value}" if isinstance(value, Exception) else getattr(value, "name", "")


@pytest.mark.parametrize(("dialect", "error"), _PASSING, ids=_named)
def test_what_passes_by_itself_is_transient(dialect: Dialect, error: Exception) -> None:
    assert is_transient(error, dialect)
    assert is_transient(DBAPIError("statement", {}, error), dialect)


@pytest.mark.parametrize(("dialect", "error"), _LASTING, ids=_named)
def test_what_would_fail_again_is_not(dialect: Dialect, error: Exception) -> None:
    assert not is_transient(error, dialect)


def _failing(times: int, error: Exception, tries: list[int]) -> Callable[[], str]:
    def work() -> str:
        tries.append(1)
        if len(tries) <= times:
            raise error
        return "done"

    return work


def test_work_is_repeated_until_it_succeeds() -> None:
    tries: list[int] = []
    patience = Patience(tries=5, first=0.001, cap=0.001)
    first = _pg("40001")
    assert patience.repeat(_failing(2, first, tries), _passes, first) == "done"
    assert len(tries) == 3


def test_repeating_has_a_bound_after_which_the_store_is_unavailable() -> None:
    tries: list[int] = []
    last = _pg("40P01")
    with pytest.raises(StoreUnavailableError, match="5 tries") as raised:
        Patience(tries=5, first=0.001, cap=0.001).repeat(_failing(99, last, tries), _passes, _pg("40001"))
    # The first try was made by whoever asked to repeat it.
    assert len(tries) == 4
    assert raised.value.__cause__ is last


def test_the_bound_is_also_one_of_time() -> None:
    tries: list[int] = []
    with pytest.raises(StoreUnavailableError):
        Patience(tries=99, seconds=0, first=0.001).repeat(_failing(99, _pg("40001"), tries), _passes, _pg("40001"))
    assert len(tries) == 1


def test_one_try_is_one_try() -> None:
    tries: list[int] = []
    with pytest.raises(StoreUnavailableError):
        Patience(tries=1).repeat(_failing(0, _pg("40001"), tries), _passes, _pg("40001"))
    assert tries == []


def test_an_error_that_lasts_ends_the_repeating_at_once() -> None:
    tries: list[int] = []
    lasting = _pg("23505")
    with pytest.raises(psycopg.errors.UniqueViolation):
        Patience(first=0.001).repeat(_failing(99, lasting, tries), _passes, _pg("40001"))
    assert len(tries) == 1


def test_what_follows_a_job_and_cannot_be_accepted_now_is_tried_again() -> None:
    assert is_transient(KeyBusy("the key is being taken"), SQLITE)


@pytest.mark.parametrize(
    ("dialect", "error"),
    [
        (POSTGRESQL, _pg("42P01")),
        (POSTGRESQL, _pg("42703")),
        (MARIADB, pymysql.err.ProgrammingError(1146, "Table 'd.guard_job' doesn't exist", sqlstate="42S02")),
        (SQLITE, sqlite3.OperationalError("no such table: guard_job")),
        (SQLITE, sqlite3.OperationalError("table guard_job has no column named followers")),
    ],
    ids=_named,
)
def test_missing_tables_are_told_with_the_remedy(dialect: Dialect, error: Exception) -> None:
    said: Any = explained(error, dialect)
    assert isinstance(said, StoreSchemaError)
    assert "guard store upgrade" in str(said)


@pytest.mark.parametrize(
    ("dialect", "error"),
    [(MARIADB, _my(1045)), (MARIADB, _my(1049)), (SQLITE, sqlite3.OperationalError("unable to open database file"))],
    ids=_named,
)
def test_a_closed_door_is_not_knocked_at_again(dialect: Dialect, error: Exception) -> None:
    assert not is_transient(error, dialect)
    assert isinstance(explained(error, dialect), StoreUnavailableError)


@pytest.mark.parametrize(
    ("dialect", "error"),
    [
        (POSTGRESQL, _pg("53100")),
        (POSTGRESQL, _pg("25006")),
        (POSTGRESQL, _pg("42501")),
        (MARIADB, _my(1021)),
        (SQLITE, sqlite3.OperationalError("attempt to write a readonly database")),
        (SQLITE, sqlite3.OperationalError("database or disk is full")),
    ],
    ids=_named,
)
def test_a_database_that_does_not_work_is_no_failure_of_a_body(dialect: Dialect, error: Exception) -> None:
    assert isinstance(explained(error, dialect), StoreUnavailableError)


def test_errors_that_are_not_the_databases_stay_what_they_are() -> None:
    error = KeyError("no such table")
    assert explained(error, SQLITE) is error


@pytest.mark.parametrize(
    ("error", "repair"),
    [
        (InvalidRequestError("MySQL version 9.7.4.2 is not a MariaDB variant."), r"mysql\+pymysql://"),
        (
            RuntimeError(
                "'cryptography' package is required for sha256_password or caching_sha2_password auth methods"
            ),
            r"pip install 'celery-guard\[mysql\]'",
        ),
    ],
    ids=["MySQL under the name of MariaDB", "a password without TLS"],
)
def test_a_server_that_cannot_be_connected_to_like_this_says_what_to_do(error: Exception, repair: str) -> None:
    said = explained(error, MARIADB)
    assert isinstance(said, SettingError)
    assert re.search(repair, str(said))
    assert str(error) in str(said)
    assert not is_transient(error, MARIADB)
    other = type(error)("something else")
    assert explained(other, MARIADB) is other
