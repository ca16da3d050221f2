"""psycopg's cursor, with a short way to statements that it has run before.

For each execution psycopg looks again for the placeholders of a text, for the types of its values and for what it was prepared as: more Python than all
else of a claim. The store's texts are few, say themselves of what type each value is, and are run for as long as the cursor lives. So after a few
executions a text is prepared, and run from there on by its name.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from itertools import count
from operator import itemgetter
from typing import Any, NamedTuple

from psycopg import Connection, Cursor, generators
from psycopg.adapt import PyFormat, Transformer
from psycopg.errors import InvalidSqlStatementName, error_from_result
from psycopg.pq import ExecStatus, TransactionStatus
from psycopg.pq.abc import PGresult

__all__ = ["PreparedCursor"]

#: How many texts are remembered.
_MOST = 100

#: A value, with the type that SQLAlchemy has it cast to, or a percent sign.
_PLACEHOLDER = re.compile(r"%\((\w+)\)s(::BYTEA\b)?|%%")

_FINE = (ExecStatus.TUPLES_OK, ExecStatus.COMMAND_OK)

#: Of names, so that none is given twice.
_NUMBERS = count()


class _Numbered(NamedTuple):
    """A text as the server wants it."""

    sql: str
    #: From the values by name to those by number.
    order: Callable[[Mapping[str, Any]], Sequence[Any]]
    formats: list[PyFormat]


@lru_cache(_MOST)
def _numbered(sql: str) -> _Numbered:
    places: dict[str, int] = {}
    formats = []

    def number(found: re.Match[str]) -> str:
        name, is_bytes = found.groups()
        if name is None:
            return "%"
        if name not in places:
            places[name] = len(places) + 1
            # Without a type of its own a value is of that which it is cast to, and only bytes are longer as text.
            formats.append(PyFormat.BINARY if is_bytes else PyFormat.TEXT)
        return f"${places[name]}{is_bytes or ''}"

    text = _PLACEHOLDER.sub(number, sql)
    names = tuple(places)
    # of one name it would make no tuple
    order = itemgetter(*names) if len(names) > 1 else lambda values: [values[name] for name in names]
    return _Numbered(text, order, formats)


class _Prepared(NamedTuple):
    name: bytes
    text: _Numbered


class PreparedCursor(Cursor[Any]):
    """A cursor that is kept as long as its connection, for ``execute``, ``fetchall`` and ``rowcount``.

    The connection is in autocommit, and its session is nobody else's. What is run in a transaction, without values, or with values in a sequence,
    goes psycopg's way.
    """

    def __init__(self, connection: Connection[Any]) -> None:
        super().__init__(connection)
        #: How often a text is run before it is prepared, as psycopg counts it; None: none is.
        self._after = connection.prepare_threshold
        self._runs: dict[str, int] = {}
        self._known: dict[str, _Prepared] = {}
        self._server = connection.pgconn
        self._wait = connection.wait
        self._transformer = Transformer(self)
        #: What the server answered to what was run last; None where that went psycopg's way.
        self._answer: PGresult | None = None

    def execute(self, query: Any, params: Any = None, **options: Any) -> Any:
        self._answer = None
        if type(params) is dict and type(query) is str and self._server.transaction_status == TransactionStatus.IDLE:
            known = self._known.get(query) or self._prepared_if_often(query)
            if known is not None:
                self._answer = self.pgresult = self._run(known, params)
                return self
        return super().execute(query, params, **options)

    @property
    def rowcount(self) -> int:
        return super().rowcount if self._answer is None else self._answer.command_tuples or 0

    def fetchall(self) -> list[Any]:
        if self._answer is None:
            return super().fetchall()
        self._transformer.set_pgresult(self._answer)
        return self._transformer.load_rows(0, self._answer.ntuples, tuple)

    def _prepared_if_often(self, query: str) -> _Prepared | None:
        runs = self._runs.get(query, 0)
        if self._after is None or runs < self._after:
            if runs or len(self._runs) < _MOST:
                self._runs[query] = runs + 1
            return None
        known = _Prepared(b"guard_%d" % next(_NUMBERS), _numbered(query))
        self._prepare(known)
        self._known[query] = known
        return known

    def _prepare(self, known: _Prepared) -> None:
        self._server.send_prepare(known.name, known.text.sql.encode(self.connection.info.encoding))
        self._answered()

    def _run(self, known: _Prepared, values: dict[str, Any]) -> PGresult:
        try:
            return self._ask(known, values)
        except InvalidSqlStatementName:
            # Nothing was run. psycopg throws away all that is prepared on a session after each rollback.
            self._prepare(known)
            return self._ask(known, values)

    def _ask(self, known: _Prepared, values: dict[str, Any]) -> PGresult:
        transformer = self._transformer
        dumped = transformer.dump_sequence(known.text.order(values), known.text.formats)
        self._server.send_query_prepared(known.name, dumped, transformer.formats)
        return self._answered()

    def _answered(self) -> PGresult:
        result: PGresult
        (result,) = self._wait(generators.execute(self._server))
        if result.status not in _FINE:
            raise error_from_result(result, self.connection.info.encoding)
        return result
