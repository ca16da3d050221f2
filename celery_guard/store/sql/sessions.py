"""The sessions of one process: SQLAlchemy's pool, and a short way to the driver's cursor.

Whoever takes a connection from SQLAlchemy is given a proxy of it, told of by events and reset at the end. The store's own statements leave nothing
to be reset, and are shorter than all that: they are given the pool's entry itself, with a cursor that is kept as long as its connection.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from sqlalchemy.pool import QueuePool

from .statement import CursorLink

__all__ = ["Sessions", "Taken"]

#: Where an entry of the pool keeps its connection's link: what is there is forgotten together with the connection.
_LINK = "guard_link"


class Sessions(QueuePool):
    """The pool of the store's own engine."""

    def take(self) -> Taken:
        """A session for the caller alone. Raises what the pool or the driver raises where there is none to be had."""
        return Taken(self, self._do_get())

    def take_back(self, entry: Any) -> None:
        """For whoever comes next; an entry without a connection is given a new one then."""
        self._do_return_conn(entry)


class Taken:
    """A session, until it is given back. One that is forgotten, when an interruption strikes, is given back without its connection."""

    __slots__ = ("_entry", "_sessions")

    def __init__(self, sessions: Sessions, entry: Any) -> None:
        self._sessions = sessions
        self._entry = entry
        try:
            entry.get_connection()
        except BaseException as error:
            self.invalidate(error)
            self.give_back()
            raise

    @property
    def connection(self) -> Any:
        """The driver's connection."""
        return self._entry.dbapi_connection

    def link(self, make: Callable[[Any], CursorLink]) -> CursorLink:
        """The one cursor of the connection, as statements see it: making it anew costs the driver as much as a short statement."""
        kept = self._entry.info
        link: CursorLink | None = kept.get(_LINK)
        if link is None:
            link = kept[_LINK] = make(self.connection)
        return link

    def invalidate(self, error: BaseException | None) -> None:
        """Close the connection, which cannot be trusted any more."""
        self._entry.invalidate(error)

    def give_back(self) -> None:
        """Done; it must not be used from here on."""
        entry, self._entry = self._entry, None
        self._sessions.take_back(entry)

    def __del__(self) -> None:
        if self._entry is not None:
            self.invalidate(None)
            self.give_back()
