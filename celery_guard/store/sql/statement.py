"""How a statement is run: written with SQLAlchemy, compiled once a dialect, executed with plain parameters.

A statement is a function of :mod:`.statements` that returns a Core construct; its arguments say which shape of it is
wanted. :class:`Texts` remembers the text of each shape. A :class:`Link` runs texts on a connection: the store's own
through the driver's cursor, where SQLAlchemy's execution would cost more than the statement, or one of the caller's.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from sqlalchemy.engine import Connection, Dialect
from sqlalchemy.exc import IntegrityError
from sqlalchemy.sql.compiler import SQLCompiler
from sqlalchemy.sql.dml import UpdateBase
from sqlalchemy.sql.elements import ClauseElement
from sqlalchemy.sql.selectable import GenerativeSelect

from .dialects import Traits, traits_of

__all__ = ["ConnectionLink", "Cursor", "CursorLink", "Link", "Row", "Statement", "Texts"]

Row = Sequence[Any]
Statement = Callable[..., ClauseElement]


class Text:
    """One statement in one dialect; ``before`` stands before one that locks rows."""

    __slots__ = ("_constants", "_names", "sql")

    def __init__(self, clause: ClauseElement, dialect: Dialect, before: str = "") -> None:
        compiled = clause.compile(dialect=dialect, compile_kwargs={"render_postcompile": True})
        assert isinstance(compiled, SQLCompiler)
        self.sql = f"{before}{compiled.string}" if _locks(clause) else compiled.string
        self._names = list(compiled.positiontup) if compiled.positiontup is not None else None
        self._constants = {name: value for name, value in compiled.params.items() if value is not None}

    def parameters(self, values: Mapping[str, Any]) -> Any:
        """The values as the driver wants them: in order, or by name."""
        if self._constants:
            values = {**self._constants, **values}
        if self._names is None:
            return values
        return tuple([values[name] for name in self._names])


def _locks(clause: ClauseElement) -> bool:
    """Whether a statement locks rows that it finds, as also an INSERT does that meets one."""
    return isinstance(clause, UpdateBase) or (
        isinstance(clause, GenerativeSelect) and clause._for_update_arg is not None
    )


class Texts:
    """The texts of one dialect, each compiled when it is first asked for.

    Args:
        callers: they are run in transactions that are not the store's own.
    """

    def __init__(self, dialect: Dialect, *, callers: bool = False) -> None:
        self.dialect = dialect
        self.traits = traits_of(dialect.name)
        self._before = self.traits.as_they_are if callers else ""
        self._texts: dict[tuple[Statement, tuple[Any, ...]], Text] = {}

    def of(self, statement: Statement, *shape: Any) -> Text:
        """The text of a statement; ``shape`` are the arguments of its function."""
        text = self._texts.get((statement, shape))
        if text is None:
            text = self._texts[statement, shape] = Text(statement(*shape), self.dialect, self._before)
        return text


class Cursor(Protocol):
    """What the store needs of a driver's cursor."""

    @property
    def rowcount(self) -> int: ...
    def execute(self, sql: str, parameters: Any, /) -> Any: ...
    def fetchall(self) -> Sequence[Row]: ...


class Link:
    """A connection, as the statements see it."""

    def __init__(self, texts: Texts) -> None:
        self.texts = texts

    @property
    def traits(self) -> Traits:
        return self.texts.traits

    def commits_at_once(self) -> bool:
        """Whether the caller's connection is in no transaction, and commits each statement by itself."""
        return False

    def rows(self, statement: Statement, values: Mapping[str, Any], *shape: Any) -> Sequence[Row]:
        """Run a statement that answers with rows."""
        raise NotImplementedError

    def changed(self, statement: Statement, values: Mapping[str, Any], *shape: Any) -> int:
        """Run a statement; how many rows matched it."""
        raise NotImplementedError

    def inserted(self, statement: Statement, values: Mapping[str, Any], *shape: Any) -> bool:
        """Run an insert of one row; False where a unique value of it exists. For databases that go on after that."""
        try:
            self.changed(statement, values, *shape)
        except Exception as error:
            if self.traits.is_duplicate(error.orig if isinstance(error, IntegrityError) and error.orig else error):
                return False
            raise
        return True


class CursorLink(Link):
    """The driver's own cursor. It ends no transaction, and begins none by itself."""

    def __init__(self, texts: Texts, cursor: Cursor) -> None:
        super().__init__(texts)
        self._cursor = cursor

    def begin(self, words: str) -> None:
        """Begin a transaction with these words."""
        execute: Any = self._cursor.execute
        execute(words)

    def commits_at_once(self) -> bool:
        # one of Django's connection says so
        return bool(getattr(self._cursor, "commits_at_once", False))

    def rows(self, statement: Statement, values: Mapping[str, Any], *shape: Any) -> Sequence[Row]:
        text = self.texts.of(statement, *shape)
        self._cursor.execute(text.sql, text.parameters(values))
        return self._cursor.fetchall()

    def changed(self, statement: Statement, values: Mapping[str, Any], *shape: Any) -> int:
        text = self.texts.of(statement, *shape)
        self._cursor.execute(text.sql, text.parameters(values))
        return self._cursor.rowcount


class ConnectionLink(Link):
    """A connection of SQLAlchemy's, so that its transaction, its events and its errors stay what they are.

    It is asked for anew with each statement: a Session sets a savepoint only when its connection is asked for inside it.
    """

    def __init__(self, texts: Texts, connection: Callable[[], Connection]) -> None:
        super().__init__(texts)
        self.connection = connection

    def commits_at_once(self) -> bool:
        return self.connection()._is_autocommit_isolation()

    def rows(self, statement: Statement, values: Mapping[str, Any], *shape: Any) -> Sequence[Row]:
        text = self.texts.of(statement, *shape)
        return self.connection().exec_driver_sql(text.sql, text.parameters(values)).fetchall()

    def changed(self, statement: Statement, values: Mapping[str, Any], *shape: Any) -> int:
        text = self.texts.of(statement, *shape)
        return self.connection().exec_driver_sql(text.sql, text.parameters(values)).rowcount
