"""What a store's author says about the store that is to be examined.

A store author's test module gives two fixtures, ``subject`` and ``caller``, and imports the suite; see
:mod:`celery_guard.testing.conformance`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any, NoReturn, Protocol

import pytest

from celery_guard.store.protocol import Store

__all__ = ["Caller", "Callers", "Subject", "refuse_callers"]


@dataclass(frozen=True, slots=True)
class Subject:
    """A store on one database. Picklable, since the suite opens it in other processes too."""

    name: str
    url: str
    #: A module-level function that opens a store at a URL.
    open: Callable[[str], Store]
    #: A module-level function that deletes every row at a URL, but keeps the tables and the store's identity.
    empty: Callable[[str], None]
    #: A module-level function that deletes the message of the job of an id at a URL, and leaves its row.
    lose_message: Callable[[str, str], None]
    #: An uncommitted holder of a key is answered ``Busy`` at once, instead of being waited for.
    busy: bool = False
    #: Two transactions may write at the same time.
    concurrent: bool = True
    #: At most so many round trips ``enqueue``, ``claim`` and ``settle`` take; empty where there is no network.
    round_trips: Mapping[str, int] = field(default_factory=dict)


class Caller(Protocol):
    """A program of somebody else's with a transaction open on the store's database, and a table of its own."""

    @property
    def transaction(self) -> object:
        """What is given to :meth:`celery_guard.store.protocol.Store.door`."""
        ...

    def write(self, text: str) -> None:
        """Write a row of the program's own in the transaction."""
        ...

    def savepoint(self) -> AbstractContextManager[object]:
        """A savepoint that is rolled back when an exception leaves it."""
        ...

    def commit(self) -> None: ...

    def rollback(self) -> None: ...


class Callers(Protocol):
    """Where callers come from: the ``caller`` fixture."""

    def __call__(self) -> Caller:
        """A caller with a transaction open on the store's database."""
        ...

    def stranger(self, *, guarded: bool) -> Caller:
        """A caller on a database that is not the store's; ``guarded``: that has a store of its own."""
        ...

    def autocommitting(self) -> Caller:
        """A caller whose connection commits every statement by itself."""
        ...

    def write_with(self, session: Any, text: str) -> None:
        """Write a row of the program's own in the transaction of a body."""
        ...

    def written(self) -> list[str]:
        """What callers have written and committed."""
        ...


def refuse_callers(store: Store) -> NoReturn:
    """The ``caller`` of a store that cannot join anybody's transaction: it has to declare so, and its door has to say so."""
    assert {"G2", "G5"} <= {*store.limits}, (
        "a store that joins no transactions declares that it does not keep G2 and G5"
    )
    with pytest.raises(TypeError, match="G2"):
        store.door(object())
    pytest.skip(f"the store does not keep G2: {store.limits['G2']}")
