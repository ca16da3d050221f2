"""What the reader sees: a bar on a terminal and lines elsewhere while it runs, and the table at its end."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from celery_guard.operate.cli.terminal import Column, Terminal

from .tally import Tally

__all__ = ["Progress", "table"]


class Progress:
    """How far an import is. Goes to stderr, so that a pipe stays clean."""

    def __init__(self, terminal: Terminal) -> None:
        self._terminal = terminal
        self._bar: Any = None
        self._title = ""
        self._total = 1
        self._tenth = 0

    @contextmanager
    def of(self, title: str, total: int) -> Iterator[None]:
        """Report about one import inside the block."""
        self._title, self._total, self._tenth = title, max(total, 1), 0
        if not sys.stderr.isatty():
            yield
            return
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn
        from rich.progress import Progress as Bar

        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
        with Bar(*columns, console=Console(stderr=True, highlight=False)) as bar:
            self._bar = bar
            self._task = bar.add_task(title, total=total)
            try:
                yield
            finally:
                self._bar = None

    def at(self, done: int) -> None:
        """So many rows are done."""
        if self._bar is not None:
            self._bar.update(self._task, completed=done)
        elif done * 10 // self._total > self._tenth:
            self._tenth = done * 10 // self._total
            self.say(f"{done} of {self._total} rows are done")

    def say(self, text: str) -> None:
        """Something happened."""
        if self._bar is not None:
            self._bar.console.print(f"  {text}", markup=False)
        else:
            self._terminal.note(f"{self._title}: {text}")


#: A line of the table: its label, and its number in a column; None where there is no such thing.
_Row = tuple[str, Callable[[Tally], "int | None"]]

_ROWS: tuple[_Row, ...] = (
    ("rows in the file", lambda tally: tally.rows),
    ("  that can be imported", lambda tally: tally.importable),
    ("  that never can", lambda tally: tally.rows - tally.importable),
    ("rows in the database", lambda tally: tally.imported),
    ("  missing", lambda tally: tally.missing),
    ("  doubled effects", lambda tally: tally.doubled),
    ("dead letters", lambda tally: tally.dead),
    ("left by a rolled-back batch", lambda tally: tally.left_by_rollback),
    ("processes killed under a row", lambda tally: tally.kills.get("row", 0)),
    ("other pool processes killed", lambda tally: tally.kills.get("child", 0)),
    ("nodes killed", lambda tally: tally.kills.get("node", 0)),
    ("relays killed", lambda tally: tally.kills.get("relay", 0) if tally.guarded else None),
    ("messages delivered twice", lambda tally: tally.delivered_twice),
    ("attempts made to fail", lambda tally: tally.failed_for_a_while),
    ("seconds", lambda tally: round(tally.seconds)),
)


def table(terminal: Terminal, tallies: Sequence[Tally]) -> None:
    """Print one column for each import."""
    terminal.say()
    columns = [Column("", _label, whole=True), *(Column(tally.title, _cell_of(tally)) for tally in tallies)]
    terminal.listing(_ROWS, columns, "")
    terminal.say()


def _label(row: _Row) -> str:
    return row[0]


def _cell_of(tally: Tally) -> Callable[[_Row], str]:
    def cell(row: _Row) -> str:
        value = row[1](tally)
        return "-" if value is None else f"{value:,}"

    return cell
