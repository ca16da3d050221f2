"""Counting at the store: adding up what rows say before they are forgotten, and reading all that was counted."""

from __future__ import annotations

import secrets
from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Any

from sqlalchemy.engine import Connection

from celery_guard.job.tally import INSTANTS, Count, Counted, Standing
from celery_guard.store.calls import batches

from . import rows
from .statement import Link, Row
from .statements import count as statements
from .tables import job

__all__ = ["beside", "counted", "fold", "fold_rows", "publish", "replayed", "standing", "write"]

#: Of what is counted, which labels tell its series apart.
_BY_ALL = frozenset({Count.ENDED})
_BY_CLASS = frozenset({Count.FAILED, Count.CANCEL_WITHIN})
_BY_STATE = frozenset({Count.RUN, Count.RUN_TIME, Count.RUN_WITHIN})

_Series = tuple[str, str, str, str, str]


def write(link: Link, what: Count, task: str, total: int = 1) -> None:
    """Count what no row says, in the transaction that the link is in. Nobody waits for anybody: it is a row of its own."""
    values = {"part_": secrets.token_hex(16), "what_": what.value, "task_": task, "total_": total}
    link.changed(statements.written, values)


def beside(link: Link, what: Count, id: str) -> None:
    """The same, of a job that exists."""
    link.changed(statements.beside, {"part_": secrets.token_hex(16), "what_": what.value, "id_": id})


def publish(connection: Connection, token: str, ids: Sequence[str]) -> None:
    """Count what a relay is about to mark as published."""
    connection.execute(statements.publications(secrets.token_hex(16), token, ids))


def replayed(connection: Connection, id: str) -> None:
    """Count that a dead job was sent again."""
    values = {"part_": secrets.token_hex(16), "what_": Count.REPLAYED.value, "id_": id}
    connection.execute(statements.beside(), values)


def counted(connection: Connection) -> list[Counted]:
    """Every total, at one moment."""
    return [
        Counted(what, task, total, state, reason, failure_class)
        for (word, task, state, reason, failure_class), total in _totals(connection.execute(statements.counted())).items()
        if (what := Count.known(word)) is not None
    ]  # fmt: skip


def standing(connection: Connection) -> list[Standing]:
    """What has not ended, and what is dead."""
    return [
        Standing(state, queue, task, number, rows.duration(int(age)), int(leased))
        for state, queue, task, number, age, leased in connection.execute(statements.standing())
    ]


def fold(connection: Connection, limit: int, *, skip_locked: bool) -> int:
    """Add up what ended rows and parts say; how many rows and parts there were."""
    ids = list(connection.execute(statements.uncounted(limit, skip_locked)).scalars())
    fold_rows(connection, ids)
    return len(ids) + _put_together(connection, limit, skip_locked)


def fold_rows(connection: Connection, ids: Sequence[str]) -> None:
    """Add up what these rows say, as far as it is not counted; they stay locked until the transaction ends."""
    jobs = connection.execute(statements.still_uncounted(ids)).all() if ids else []
    if not jobs:
        return
    ids = [id for id, _ in jobs]
    which = job.c.id.in_(ids)
    said = [statements.measured(which), statements.failed(which)]
    if any(schedule is not None for _, schedule in jobs):
        said.append(statements.scheduled(which))
    found = [row for statement in said for row in connection.execute(statement)]
    _add(connection, _totals(found))
    connection.execute(statements.folded(ids))


def _put_together(connection: Connection, limit: int, skip_locked: bool) -> int:
    found = connection.execute(statements.parts(limit, skip_locked)).all()
    if found:
        totals: dict[_Series, int] = defaultdict(int)
        for _, what, task, state, reason, failure_class, total in found:
            totals[what, task, state, reason, failure_class] += total
        connection.execute(statements.drop_parts([(row[0], row[1], row[2]) for row in found]))
        _add(connection, totals)
    return len(found)


def _add(connection: Connection, totals: dict[_Series, int]) -> None:
    """In one order everywhere, so that two who add at once do not wait for each other in a circle."""
    names = ("part", "what", "task", "state", "reason", "failure_class", "total")
    written = [dict(zip(names, ("", *series, total), strict=True)) for series, total in sorted(totals.items())]
    for batch in batches(written):
        connection.execute(statements.add(connection.dialect.name, batch))


def _totals(found: Iterable[Row]) -> dict[_Series, int]:
    """By series. A row without a name has a column for each measure."""
    totals: dict[_Series, int] = defaultdict(int)
    for word, task, state, reason, failure_class, *values in found:
        if word:
            _put(totals, word, (task, state, reason, failure_class), values[0])
            if values[1]:
                # the rows say how often, their failures of which class: what is left are those that nobody raised an error for
                _put(totals, Count.RETRIED.value, (task, "", "", failure_class), values[1])
                _put(totals, Count.RETRIED.value, (task, "", "", ""), -values[1])
            continue
        for (what, bound), value in zip(statements.MEASURES, values, strict=True):
            if value:
                _put(totals, what.value, _labels(what, task, state, reason, failure_class, bound), value)
    return totals


def _put(totals: dict[_Series, int], what: str, labels: tuple[str, str, str, str], value: Any) -> None:
    series = (what, *labels)
    totals[series] = max(totals[series], int(value)) if what in INSTANTS else totals[series] + int(value)


def _labels(
    what: Count, task: str, state: str, reason: str, failure_class: str, bound: str
) -> tuple[str, str, str, str]:
    if what in _BY_ALL:
        return task, state, reason, failure_class
    return task, state if what in _BY_STATE else "", "", bound
