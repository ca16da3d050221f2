"""Writing: tables for people on a terminal, plain aligned columns into a pipe, JSON for programs.

Colours and borders are for a terminal alone. Answers go to stdout; what is only said goes to stderr, so that a pipe stays clean.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import click

from .main import COLOR, JSON
from .words import one_line, record, safe

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

__all__ = ["Column", "Terminal"]

T = TypeVar("T")

#: Blanks between two columns.
_GAP = 2
#: A column of texts may be folded to so many characters, and no narrower: words could not be read.
_LEAST = 12
#: From so many things on, work is shown by a bar.
_LONG = 20


@dataclass(frozen=True, slots=True)
class Column(Generic[T]):
    """One column of a listing."""

    title: str
    text: Callable[[T], str]
    #: Never broken into two lines: an id has to be copied whole.
    whole: bool = False
    #: Left out on a terminal that is too narrow for all.
    minor: bool = False
    #: The colour of a text on a terminal; empty for none.
    color: Callable[[str], str] = lambda text: ""


class Terminal:
    """Where the answer goes."""

    def __init__(self, *, as_json: bool = False, color: bool = True) -> None:
        self.as_json = as_json
        self._color = color

    @classmethod
    def of(cls, ctx: click.Context) -> Terminal:
        """As the command line asked for; also honours ``celery --no-color`` and ``NO_COLOR``."""
        plain = getattr(ctx.obj, "no_color", False)
        return cls(as_json=bool(ctx.meta.get(JSON)), color=bool(ctx.meta.get(COLOR, True)) and not plain)

    def json(self, value: Any) -> None:
        """Print one JSON document."""
        self.say(json.dumps(record(value), indent=2, ensure_ascii=True))

    def say(self, text: str = "") -> None:
        """Print to stdout."""
        click.echo(_encodable(safe(text), sys.stdout))

    def note(self, text: str) -> None:
        """Print to stderr."""
        click.echo(_encodable(safe(text), sys.stderr), err=True)

    def listing(self, items: Sequence[T], columns: Sequence[Column[T]], nothing: str) -> None:
        """Print items as rows, without the columns that are empty in all of them.

        Where a terminal is too narrow for rows that can be read, each item is a block of labelled lines.
        """
        if not items:
            self.note(nothing)
            return
        used = _used(items, columns)
        if sys.stdout.isatty():
            console = self._console()
            if _legible(used, console.width):
                console.print(self._made(console, used))
            else:
                self._blocks(used)
            return
        widths = _widths(used)
        for row in zip(*([column.title.upper(), *texts] for column, texts in used), strict=True):
            self.say((" " * _GAP).join(text.ljust(width) for text, width in zip(row, widths, strict=True)).rstrip())

    def _blocks(self, used: Sequence[tuple[Column[Any], Sequence[str]]]) -> None:
        rows = zip(*(texts for _, texts in used), strict=True)
        for number, row in enumerate(rows):
            if number:
                self.say()
            self.details([(column.title, text) for (column, _), text in zip(used, row, strict=True)])

    def details(self, pairs: Sequence[tuple[str, str]]) -> None:
        """Print labelled values, one a line, without the empty ones."""
        shown = [(label, one_line(text)) for label, text in pairs if text]
        width = max((len(label) for label, _ in shown), default=0)
        for label, text in shown:
            self.say(f"{label.ljust(width)}  {text}")

    def colored(self, text: str, color: str) -> str:
        """The text, in a colour on a terminal."""
        return (
            click.style(text, fg=color)
            if self._color and sys.stdout.isatty() and "NO_COLOR" not in os.environ
            else text
        )

    @contextmanager
    def progress(self, what: str, total: int) -> Iterator[Callable[[int], object]]:
        """A bar on a terminal while something takes its time; the block says how much is done. Nothing elsewhere."""
        if self.as_json or not sys.stderr.isatty() or total < _LONG:
            yield lambda done: None
            return
        from rich.console import Console
        from rich.progress import Progress

        with Progress(console=Console(stderr=True, no_color=not self._color or None), transient=True) as bar:
            task = bar.add_task(what, total=total)
            yield lambda done: bar.update(task, completed=done)

    @contextmanager
    def live(self) -> Iterator[Callable[[Sequence[T], Sequence[Column[T]]], object]]:
        """A table that is drawn anew each time it is given rows."""
        from rich.live import Live

        console = self._console()
        with Live(console=console, auto_refresh=False) as drawn:
            yield lambda items, columns: drawn.update(self._made(console, _used(items, columns)), refresh=True)

    def heading(self, text: str) -> None:
        """Print a line that opens a block."""
        self.say()
        self.say(text)

    def _console(self) -> Console:
        from rich.console import Console

        return Console(no_color=not self._color or None, highlight=False)

    def _made(self, console: Console, used: Sequence[tuple[Column[Any], Sequence[str]]]) -> Table:
        from rich.table import Table
        from rich.text import Text

        used = _fitting(used, console.width)
        table = Table(box=None, pad_edge=False, padding=(0, _GAP, 0, 0), header_style="bold")
        for column, _ in used:
            table.add_column(Text(column.title), no_wrap=column.whole, overflow="fold")
        cells = [[Text(_encodable(text, sys.stdout), column.color(text)) for text in texts] for column, texts in used]
        for row in zip(*cells, strict=True):
            table.add_row(*row)
        return table


def _used(items: Sequence[T], columns: Sequence[Column[T]]) -> list[tuple[Column[T], list[str]]]:
    """The columns with what is in them, without those that are empty in all rows."""
    cells = [[one_line(column.text(item)) for item in items] for column in columns]
    return [(column, texts) for column, texts in zip(columns, cells, strict=True) if any(texts)]


def _widths(used: Sequence[tuple[Column[Any], Sequence[str]]]) -> list[int]:
    return [max(len(column.title), *map(len, texts)) for column, texts in used]


def _fitting(
    used: Sequence[tuple[Column[Any], Sequence[str]]], width: int
) -> Sequence[tuple[Column[Any], Sequence[str]]]:
    """Without as many minor columns, from the right, as it takes for the rest to fit."""
    used = list(used)
    for pair in reversed([pair for pair in used if pair[0].minor]):
        if sum(_widths(used)) + _GAP * (len(used) - 1) <= width:
            break
        used.remove(pair)
    return used


def _legible(used: Sequence[tuple[Column[Any], Sequence[str]]], width: int) -> bool:
    """Whether rows fit, if what is minor is left out and texts are folded."""
    needed = [(pair[0].whole, width) for pair, width in zip(used, _widths(used), strict=True) if not pair[0].minor]
    return sum(wide if whole else min(wide, _LEAST) for whole, wide in needed) + _GAP * (len(needed) - 1) <= width


def _encodable(text: str, stream: Any) -> str:
    """The text with what the stream's encoding does not have written out."""
    encoding = getattr(stream, "encoding", None) or "utf-8"
    return text.encode(encoding, "backslashreplace").decode(encoding)
