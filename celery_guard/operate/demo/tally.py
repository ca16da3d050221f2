"""What became of the rows of one import, and whether that is what was promised."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from .plan import Plan

__all__ = ["Tally", "add_up"]

#: Rows named in a problem.
_NAMED = 5


@dataclass(frozen=True, slots=True)
class Tally:
    """One column of the table."""

    title: str
    guarded: bool
    rows: int
    importable: int
    #: Importable rows that are in the database, however often.
    imported: int
    #: Importable rows that are not.
    missing: int
    #: Rows in the database that are there already.
    doubled: int
    #: Rows that can never be imported and are a dead letter; None where there is no such thing.
    dead: int | None
    #: What a batch that was rolled back has left: batches, airports and jobs; None where it was not tried.
    left_by_rollback: int | None
    kills: Mapping[str, int]
    delivered_twice: int
    failed_for_a_while: int
    ended_alone: int
    seconds: float
    #: What is not as it was promised, in words.
    problems: tuple[str, ...] = field(default=())


def add_up(
    title: str,
    plan: Plan,
    *,
    batches: Sequence[int],
    airports: Sequence[tuple[int, str]],
    jobs: int | None,
    dead: Sequence[str] | None,
    kills: Mapping[str, int],
    delivered_twice: int,
    failed_for_a_while: int,
    ended_alone: int,
    seconds: float,
) -> Tally:
    """Compare the file with the database.

    ``dead`` are the rows of the dead letters, and ``jobs`` how many jobs the store has; None for plain Celery.
    """
    importable = {row["iata"] for row in plan.rows} - plan.invalid
    [batch] = batches[:1] or [0]
    times = Counter(iata for number, iata in airports if number == batch)
    missing = sorted(importable - times.keys())
    doubled = {iata: count - 1 for iata, count in times.items() if count > 1}
    left = None if jobs is None else len(batches) - 1 + len(airports) - times.total() + jobs - len(plan.rows)
    problems = [
        *_named("importable rows are missing", missing),
        *_named("rows were imported more than once", sorted(doubled)),
        *_named("rows that nobody can import were imported", sorted(times.keys() - importable)),
    ]
    if dead is not None:
        problems += _named("rows that nobody can import are no dead letter", sorted(plan.invalid - set(dead)))
        problems += _named("importable rows are dead letters", sorted(importable & set(dead)))
        problems += _named("rows have more than one dead letter", sorted(k for k, n in Counter(dead).items() if n > 1))
    if left:
        problems.append(f"the batch that was rolled back has left {left} rows")
    return Tally(
        title=title,
        guarded=jobs is not None,
        rows=len(plan.rows),
        importable=len(importable),
        imported=len(importable & times.keys()),
        missing=len(missing),
        doubled=sum(doubled.values()),
        dead=None if dead is None else len(dead),
        left_by_rollback=left,
        kills=dict(kills),
        delivered_twice=delivered_twice,
        failed_for_a_while=failed_for_a_while,
        ended_alone=ended_alone,
        seconds=seconds,
        problems=tuple(problems),
    )


def _named(what: str, names: Sequence[str]) -> list[str]:
    if not names:
        return []
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return [f"{len(names)} {what}: {', '.join(names[:_NAMED])}{more}"]
