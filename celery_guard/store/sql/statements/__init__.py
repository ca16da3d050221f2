"""Every statement of the store, named, a file a journey: ``accept``, ``run``, ``relay``, ``sweep``, ``people``.

A statement is a function that returns a Core construct. What it is given when it runs is spelled ``given("owner")`` and
travels as the parameter ``owner_``: SQLAlchemy keeps the names of columns for itself.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from sqlalchemy import (
    ARRAY,
    BigInteger,
    Boolean,
    ColumnElement,
    Integer,
    String,
    bindparam,
    case,
    literal,
    literal_column,
)
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.compiler import SQLCompiler
from sqlalchemy.sql.functions import FunctionElement
from sqlalchemy.types import TypeEngine

from celery_guard.job.state import ENDED, Kind, Reason, State
from celery_guard.job.tally import Count
from celery_guard.store.bounds import DOUBLINGS
from celery_guard.store.sql.tables import job

__all__ = ["Among", "doubled", "ended", "fixed", "given", "number", "one_of"]


class Among(FunctionElement[bool]):
    """The column has one of these texts.

    PostgreSQL is given them as one array, so that the statement is the same for one and for 500 of them: a parameter each would be more than the
    driver remembers the translation of, and more than the server prepares.
    """

    inherit_cache = True
    type = Boolean()

    def __init__(self, column: ColumnElement[str], texts: Iterable[str]) -> None:
        found = list(texts)
        each = bindparam(None, found, type_=String, expanding=True, unique=True)
        super().__init__(column, literal(found, ARRAY(String)), each)

    def self_group(self, against: Any = None) -> Any:
        """As it is: where a database has no booleans SQLAlchemy would compare it with 1, and no index would be used."""
        return self


@compiles(Among)
def _among(element: Among, compiler: SQLCompiler, **options: Any) -> str:
    column, _, each = element.clauses
    return compiler.process(column.in_(each), **options)


@compiles(Among, "postgresql")
def _among_array(element: Among, compiler: SQLCompiler, **options: Any) -> str:
    column, array, _ = element.clauses
    return f"{compiler.process(column, **options)} = ANY ({compiler.process(array, **options)})"


def given(name: str, type_: type[TypeEngine[Any]] | TypeEngine[Any] = String) -> ColumnElement[Any]:
    """A value that is given when the statement runs, as the parameter ``name_``."""
    return bindparam(f"{name}_", type_=type_)


def number(name: str) -> ColumnElement[int]:
    """A number, or a duration in microseconds, that is given when the statement runs."""
    return given(name, BigInteger)


def fixed(word: State | Reason | Kind | Count) -> ColumnElement[str]:
    """A word of ours, spelled out in the text: a parameter would hide it from partial indexes."""
    return literal_column(f"'{word.value}'", String)


def one_of(words: Iterable[State]) -> ColumnElement[bool]:
    """The job is in one of these states."""
    return job.c.state.in_([fixed(word) for word in sorted(words)])


def ended() -> ColumnElement[bool]:
    """The job has ended."""
    return one_of(ENDED)


def doubled(duration: ColumnElement[int]) -> ColumnElement[int]:
    """A duration, doubled for each time that the row was published since its last claim."""
    times = case((job.c.publications < DOUBLINGS, job.c.publications), else_=DOUBLINGS)
    return duration * literal_column("1", Integer).bitwise_lshift(times)
