"""Statements of a rotation of keys: encrypted texts by the primary key of their rows, a page at a time, and one in place of another."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from sqlalchemy import Column, ColumnElement, LargeBinary, String, and_, case, func, literal, null, or_, select, update
from sqlalchemy.sql.dml import Update
from sqlalchemy.sql.selectable import Select

from celery_guard.job.ciphertext import CiphertextKind
from celery_guard.job.encryption import ID_LENGTH, MESSAGE, MESSAGE_END, RESULT, TEXT
from celery_guard.store.sql.tables import failure, payload, result

__all__ = ["HOMES", "Home", "listed", "replaced"]


@dataclass(frozen=True)
class Home:
    """A column that may hold ciphertext, between what comes before and behind it."""

    text: Column[Any]
    part: Column[int] | None
    before: str = ""
    behind: str = ""
    #: What says that the column is encrypted, where that is not its beginning.
    when: ColumnElement[bool] | None = None

    def whole(self, text: str) -> Any:
        """The value of the column that holds this ciphertext."""
        value = f"{self.before}{text}{self.behind}"
        return value.encode() if self.is_bytes else value

    def inner(self, value: Any, brief: bool) -> str:
        """The ciphertext in a value of the column, or in as much of it as has the key's id."""
        text = bytes(value).decode("ascii", "replace") if self.is_bytes else str(value)
        first = len(self.before)
        return text[first : first + ID_LENGTH] if brief else text[first : len(text) - len(self.behind)]

    @property
    def is_bytes(self) -> bool:
        """Whether the column holds bytes, not characters."""
        return not isinstance(self.text.type, String)

    def slice(self, first: int, length: int) -> ColumnElement[Any]:
        """A part of the column's value, counted from 0."""
        kind = LargeBinary() if self.is_bytes else String()
        return func.substr(self.text, first + 1, length, type_=kind)

    def given(self, text: str) -> Any:
        """A text as the column's values are compared with."""
        return text.encode() if self.is_bytes else text


HOMES = {
    CiphertextKind.MESSAGE: Home(payload.c.body, payload.c.generation, MESSAGE, MESSAGE_END),
    CiphertextKind.RESULT: Home(result.c.body, None, when=result.c.content_type == RESULT),
    CiphertextKind.FAILURE: Home(failure.c.message, failure.c.number, TEXT),
}


def listed(
    kind: CiphertextKind, after: tuple[str, int] | None, limit: int, but: str | None, brief: bool
) -> Select[Any]:
    """The next rows behind ``after``: (job, part, the column's value). The value is NULL where it is no ciphertext, or of the key ``but``.

    With a limit on rows that are looked at, not on those that are found: so each statement is short, however few there are.
    """
    home = HOMES[kind]
    table = home.text.table
    part: ColumnElement[Any] = literal(0) if home.part is None else home.part
    wanted = home.slice(0, len(home.before)) == home.given(home.before) if home.when is None else home.when
    place = len(home.before)
    if but is not None:
        wanted = and_(wanted, home.slice(place, ID_LENGTH) != home.given(but))
    value = home.slice(0, place + ID_LENGTH) if brief else home.text
    found = select(table.c.job, part.label("part"), case((wanted, value), else_=null()).label("text")).limit(limit)
    order = [table.c.job] if home.part is None else [table.c.job, home.part]
    if after is not None:
        job, number = after
        behind = table.c.job > job
        if home.part is not None:
            behind = and_(table.c.job >= job, or_(behind, home.part > number))
        found = found.where(behind)
    return found.order_by(*order)


def replaced(kind: CiphertextKind, job: str, part: int, was: str, text: str) -> Update:
    """Put ``text`` where ``was`` is still there."""
    home = HOMES[kind]
    table = home.text.table
    change = update(table).where(table.c.job == job, home.text == home.whole(was))
    if home.part is not None:
        change = change.where(home.part == part)
    return change.values({home.text.name: home.whole(text)})
