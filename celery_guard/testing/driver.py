"""A database driver that says what it writes: a point before and after each statement that changes something.

The connections and cursors are the driver's own, each behind a stand-in that passes everything on and is taken for the real one. Nothing above the
driver knows, so what is seen is what is sent: SQLAlchemy's statements, those of the driver's plain cursor, and commits.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import Any

__all__ = ["watched"]

#: How a statement begins that changes something, after what MariaDB alone reads. PostgreSQL's ``WITH`` is here for the writes inside.
_WRITES = re.compile(r"\s*(/\*.*?\*/\s*)?(INSERT|UPDATE|DELETE|REPLACE|WITH|BEGIN|START TRANSACTION)", re.IGNORECASE)

Writing = Callable[[], AbstractContextManager[None]]


def watched(connect: Callable[..., Any], writing: Writing) -> Callable[..., Any]:
    """The driver's ``connect``, whose connections enter ``writing`` around each write."""

    def connect_watched(*args: Any, **kwargs: Any) -> Any:
        return _Connection(connect(*args, **kwargs), writing)

    return connect_watched


class _StandIn:
    """Is taken for what it stands in for, also by ``isinstance``."""

    def __init__(self, inner: Any, writing: Writing) -> None:
        object.__setattr__(self, "_inner", inner)
        object.__setattr__(self, "_writing", writing)

    @property  # type: ignore[misc]
    def __class__(self) -> Any:
        return type(self._inner)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(self._inner, name, value)


class _Connection(_StandIn):
    def cursor(self, *args: Any, **kwargs: Any) -> Any:
        return _Cursor(self._inner.cursor(*args, **kwargs), self._writing)

    def commit(self) -> None:
        with self._writing():
            self._inner.commit()


class _Cursor(_StandIn):
    """Fetches what a write answers with at once: SQLite has not done all of it before its last row is fetched."""

    def __init__(self, inner: Any, writing: Writing) -> None:
        super().__init__(inner, writing)
        object.__setattr__(self, "_rows", None)

    def execute(self, statement: Any, *args: Any, **kwargs: Any) -> Any:
        object.__setattr__(self, "_rows", None)
        if _WRITES.match(str(statement)) is None:
            return self._own(self._inner.execute(statement, *args, **kwargs))
        with self._writing():
            answer = self._inner.execute(statement, *args, **kwargs)
            if self._inner.description is not None:
                object.__setattr__(self, "_rows", deque(self._inner.fetchall()))
        return self._own(answer)

    def executemany(self, statement: Any, *args: Any, **kwargs: Any) -> Any:
        with self._writing():
            return self._own(self._inner.executemany(statement, *args, **kwargs))

    def fetchone(self) -> Any:
        if self._rows is None:
            return self._inner.fetchone()
        return self._rows.popleft() if self._rows else None

    def fetchmany(self, size: int = 1) -> Any:
        if self._rows is None:
            return self._inner.fetchmany(size)
        return [self._rows.popleft() for _ in range(min(size, len(self._rows)))]

    def fetchall(self) -> Any:
        if self._rows is None:
            return self._inner.fetchall()
        return self.fetchmany(len(self._rows))

    def _own(self, answer: Any) -> Any:
        """psycopg's and SQLite's cursors answer with themselves."""
        return self if answer is self._inner else answer

    def __enter__(self) -> Any:
        self._inner.__enter__()
        return self

    def __exit__(self, *exc: Any) -> Any:
        return self._inner.__exit__(*exc)

    def __iter__(self) -> Iterator[Any]:
        return iter(self._inner if self._rows is None else self.fetchall())
