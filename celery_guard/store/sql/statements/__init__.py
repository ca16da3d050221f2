"""Every statement of the store, named, a file a journey: ``accept``, ``run``, ``relay``, ``sweep``, ``people``.

A statement is a function that returns a Core construct. What it is given when it runs is spelled ``given("owner")`` and
travels as the parameter ``owner_``: SQLAlchemy keeps the names of columns for itself.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from sqlalchemy import BigInteger, ColumnElement, Integer, String, bindparam, case, literal_column
from sqlalchemy.types import TypeEngine

from celery_guard.job.state import ENDED, Kind, Reason, State
from celery_guard.store.bounds import DOUBLINGS
from celery_guard.store.sql.tables import job

__all__ = ["doubled", "ended", "fixed", "given", "number", "one_of"]


def given(name: str, type_: type[TypeEngine[Any]] | TypeEngine[Any] = String) -> ColumnElement[Any]:
    """A value that is given when the statement runs, as the parameter ``name_``."""
    return bindparam(f"{name}_", type_=type_)


def number(name: str) -> ColumnElement[int]:
    """A number, or a duration in microseconds, that is given when the statement runs."""
    return given(name, BigInteger)


def fixed(word: State | Reason | Kind) -> ColumnElement[str]:
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
