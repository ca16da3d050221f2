"""The texts of the statements, in each dialect."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from itertools import product
from typing import Any

import pytest
from sqlalchemy import Dialect
from sqlalchemy.dialects.mysql.pymysql import MySQLDialect_pymysql
from sqlalchemy.dialects.postgresql.psycopg import PGDialect_psycopg
from sqlalchemy.dialects.sqlite.pysqlite import SQLiteDialect_pysqlite

from celery_guard.job.instant import Instant
from celery_guard.store.sql import accept as acceptance
from celery_guard.store.sql.statement import Texts
from celery_guard.store.sql.statements import accept, relay, run
from celery_guard.store.sql.statements.run import Beside, Compare, Fate
from celery_guard.testing.conformance.builders import LONG, keyed

#: Psycopg remembers how it has translated a text only within these bounds.
_REMEMBERED_LENGTH, _REMEMBERED_PARAMETERS = 4096, 50

AT_ONCE: list[tuple[Any, ...]] = [
    *((accept.accept, *shape) for shape in product((False, True), repeat=4)),
    *((accept.carry_on_at_once, notify) for notify in (False, True)),
    *((run.move_at_once, fate, compare, *Beside) for fate in Fate for compare in Compare),
    (run.claim_returning,),
    (relay.take_at_once,),
    (relay.taken_again,),
    (relay.mark_at_once,),
]

_MOVES: list[tuple[Any, ...]] = [(run.move, fate, compare) for fate in Fate for compare in Compare]


def _texts(dialect: Dialect, shapes: list[tuple[Any, ...]]) -> Iterator[str]:
    texts = Texts(dialect)
    for statement, *shape in shapes:
        yield texts.of(statement, *shape).sql


def test_what_postgresql_runs_in_one_statement_stays_within_the_drivers_memory() -> None:
    for sql in _texts(PGDialect_psycopg(), AT_ONCE):  # type: ignore[no-untyped-call]
        assert len(sql) < _REMEMBERED_LENGTH
        assert len(set(re.findall(r"%\((\w+)\)s", sql))) < _REMEMBERED_PARAMETERS


@pytest.mark.parametrize("dialect", [MySQLDialect_pymysql, SQLiteDialect_pysqlite])
def test_no_statement_gives_a_column_from_one_that_it_has_assigned_before(dialect: Callable[[], Dialect]) -> None:
    """MySQL reads the new value of a column on the right of an assignment that follows."""
    for sql in _texts(dialect(), [(run.claim,), *_MOVES]):
        assignments = re.search(r" SET (.*) WHERE ", sql)
        assert assignments is not None
        assigned: set[str] = set()
        for name, value in re.findall(r"(\w+)=(.*?)(?=, \w+=|$)", assignments[1]):
            read = set(re.findall(r"guard_job\.(\w+)", value))
            assert not read & assigned, sql
            assigned.add(name)


@pytest.mark.parametrize(
    ("dialect", "written"),
    [
        (MySQLDialect_pymysql, r"guard_job\.id IN \(__\[POSTCOMPILE_\w+\]\)"),
        (SQLiteDialect_pysqlite, r"guard_job\.id IN \(__\[POSTCOMPILE_\w+\]\)"),
        (PGDialect_psycopg, r"guard_job\.id = ANY \(%\(param_1\)s::VARCHAR\[\]\)"),
    ],
)
def test_ids_are_looked_for_as_an_index_finds_them(dialect: Callable[[], Dialect], written: str) -> None:
    """Compared with 1, as an expression that is true or not, they would have every row read, and locked."""
    for statement in (relay.due_now(["one", "two"]), relay.states_of_holders(["one", "two"])):
        text = str(statement.compile(dialect=dialect()))
        assert re.search(rf"WHERE {written}( AND |$)", text), text


@pytest.mark.parametrize(
    "statement", [(accept.find, True, True), (accept.accept_job, False, False), (accept.carry_on,)]
)
def test_in_a_callers_transaction_mariadb_finds_rows_as_they_are(statement: tuple[Any, ...]) -> None:
    """It would undo the whole transaction that has seen less; elsewhere this is a comment."""
    as_they_are = r"/\*M!110602 SET STATEMENT innodb_snapshot_isolation = OFF FOR \*/ [A-Z]"
    assert re.match(as_they_are, Texts(MySQLDialect_pymysql(), callers=True).of(*statement).sql)
    assert not re.search("SET STATEMENT", Texts(MySQLDialect_pymysql(), callers=True).of(accept.find, True, False).sql)
    for texts in (Texts(MySQLDialect_pymysql()), Texts(SQLiteDialect_pysqlite(), callers=True)):
        assert "SET STATEMENT" not in texts.of(*statement).sql


def test_a_text_is_made_once() -> None:
    texts = Texts(SQLiteDialect_pysqlite())
    assert texts.of(run.move, Fate.ENDS, Compare.OWNER) is texts.of(run.move, Fate.ENDS, Compare.OWNER)
    assert texts.of(run.move, Fate.ENDS, Compare.OWNER) is not texts.of(run.move, Fate.WAITS, Compare.OWNER)


@pytest.mark.parametrize("dialect", [MySQLDialect_pymysql, SQLiteDialect_pysqlite, PGDialect_psycopg])
def test_what_a_door_hands_to_a_driver_is_plain(dialect: Callable[[], Dialect]) -> None:
    job = keyed("order 1", deadline=Instant(5), deadline_in=LONG, delay=LONG, priority=3)
    text = Texts(dialect()).of(accept.accept_job, False, False)
    values = {**acceptance._values(job), "held_key_": job.key}
    parameters = text.parameters(values)
    for value in parameters.values() if isinstance(parameters, dict) else parameters:
        assert type(value) in (str, int, bytes, type(None))


def test_postgresql_is_given_many_ids_as_one_array_and_the_others_one_by_one() -> None:
    ids = [f"job {number}" for number in range(500)]

    def text_of(dialect: Dialect, ids: list[str]) -> str:
        return str(
            relay.published("token", ids, 1).compile(dialect=dialect, compile_kwargs={"render_postcompile": True})
        )

    postgresql: Dialect = PGDialect_psycopg()  # type: ignore[no-untyped-call]
    assert text_of(postgresql, ids) == text_of(postgresql, ids[:1])
    assert "= ANY (" in text_of(postgresql, ids)
    for dialect in (SQLiteDialect_pysqlite(), MySQLDialect_pymysql()):
        assert " IN (" in text_of(dialect, ids)
        assert "ANY" not in text_of(dialect, ids)
