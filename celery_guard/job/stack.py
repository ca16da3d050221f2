"""Where an exception came from: its frames, what it was raised from, and the one place that names its group.

Nothing is formatted that is not kept: of a deep recursion the ends, of a long chain of causes the ends, of a group the
first members.
"""

from __future__ import annotations

import linecache
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from types import FrameType, TracebackType
from typing import Any

from celery_guard.contract.foreign import attribute

from .text import message_of, type_name_of

__all__ = ["format_chain", "place_of"]

#: Frames kept of one traceback, links kept of a chain, members kept of a group: from the beginning, from the end.
_FRAMES = (5, 25)
_LINKS = (5, 3)
_MEMBERS = (10, 2)
_MEMBER_FRAMES = 2
_NOTES = 5
_GROUP_DEPTH = 2
_INNER_MESSAGE = 1024
_LONGEST_LINE = 200
#: A chain longer than this is not followed to its end.
_LONGEST_CHAIN = 10_000

_CAUSED = "\nThe above exception was the direct cause of the following exception:\n\n"
_DURING = "\nDuring handling of the above exception, another exception occurred:\n\n"

#: What calls bodies; no frame of it is the place where a body failed.
_MACHINERY = frozenset({"amqp", "billiard", "celery", "celery_guard", "kombu", "vine"})
_STANDARD = os.path.dirname(os.__file__) + os.sep
_INSTALLED = (f"{os.sep}site-packages{os.sep}", f"{os.sep}dist-packages{os.sep}")
#: Frames of their own before Python 3.12, and none after it.
_COMPREHENSIONS = frozenset({"<listcomp>", "<setcomp>", "<dictcomp>"})


@dataclass(frozen=True, slots=True)
class _Frame:
    module: str
    function: str
    file: str
    line: int
    frame: FrameType

    @property
    def package(self) -> str:
        return self.module.partition(".")[0]

    @property
    def standard(self) -> bool:
        return self.file.startswith("<frozen") or (self.file.startswith(_STANDARD) and not self.installed)

    @property
    def installed(self) -> bool:
        return any(part in self.file for part in _INSTALLED)

    @property
    def text(self) -> str:
        """As Python writes it."""
        source = self._source()
        return f'  File "{self.file}", line {self.line}, in {self.function}\n' + (f"    {source}\n" if source else "")

    def _source(self) -> str:
        try:
            line = linecache.getline(self.file, self.line, self.frame.f_globals)
        except Exception:  # noqa: BLE001 - a module's loader is foreign code; a line of source is not worth a failure
            return ""
        return line.strip()[:_LONGEST_LINE]

    @property
    def place(self) -> str:
        named = self.module and self.module != "__main__"
        return f"{self.module if named else os.path.basename(self.file)}:{self.function}"


def place_of(error: BaseException) -> str:
    """``module:function`` of the innermost frame of the user's code; empty for an exception that was never raised."""
    frames = [frame for frame in _frames(error) if frame.function not in _COMPREHENSIONS]
    bodies = [frame for frame in frames if frame.package not in _MACHINERY]
    home = next((frame.package for frame in bodies if not frame.standard), None)
    users = [frame for frame in bodies if frame.package == home or not (frame.standard or frame.installed)]
    known = users or bodies or frames
    return known[-1].place if known else ""


def format_chain(error: BaseException, limit: int) -> tuple[str, bool]:
    """The traceback as Python writes it, the root of the chain first; whether something is left out.

    ``limit`` bounds the outermost message, in bytes.
    """
    account = _Account()
    links = account.ends(list(_chain(error)), _LINKS)
    for index, pair in reversed(list(enumerate(links))):
        if isinstance(pair, str):
            account.lines.append(f"\n[… {pair} exceptions of the chain left out …]\n\n")
            continue
        link, joint = pair
        account.raised(link, _INNER_MESSAGE if index else limit)
        account.lines.append(joint)
    return "".join(account.lines), account.truncated


def _chain(error: BaseException) -> Iterator[tuple[BaseException, str]]:
    """The exception and what it was raised from, outermost first, each with the words that come after it."""
    seen: set[int] = set()
    link: Any = error
    joint = ""
    while isinstance(link, BaseException) and id(link) not in seen and len(seen) < _LONGEST_CHAIN:
        seen.add(id(link))
        yield link, joint
        cause = attribute(link, "__cause__")
        if cause is not None:
            link, joint = cause, _CAUSED
        else:
            hidden = attribute(link, "__suppress_context__")
            link, joint = None if hidden else attribute(link, "__context__"), _DURING


class _Account:
    """The lines written so far, and whether anything was left out of them."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.truncated = False

    def ends(self, items: Sequence[Any], most: tuple[int, int]) -> list[Any]:
        """The first and last items; between them, where some are left out, a text: how many."""
        first, last = most
        if len(items) <= first + last:
            return list(items)
        self.truncated = True
        return [*items[:first], str(len(items) - first - last), *items[-last:]]

    def raised(self, error: BaseException, limit: int) -> None:
        """An exception of the chain: its frames, its own words, its notes, its members."""
        frames = self.ends(list(_frames(error)), _FRAMES)
        if frames:
            self.lines.append("Traceback (most recent call last):\n")
        for frame in frames:
            self.lines.append(frame.text if isinstance(frame, _Frame) else f"  [… {frame} frames left out …]\n")
        self.lines.append(self.headline(error, limit))
        notes = attribute(error, "__notes__")
        for note in notes[:_NOTES] if isinstance(notes, list) else ():
            self.lines.append(f"{note[:_LONGEST_LINE]}\n" if isinstance(note, str) else "")
        self.members(error, 1)

    def headline(self, error: BaseException, limit: int) -> str:
        """Class and message."""
        message, was_cut = message_of(error, limit)
        self.truncated = self.truncated or was_cut
        return f"{type_name_of(error)}: {message}\n" if message else f"{type_name_of(error)}\n"

    def members(self, error: BaseException, depth: int) -> None:
        """The exceptions of a group, numbered and indented, each with its innermost frames."""
        inner = attribute(error, "exceptions")
        if not isinstance(inner, tuple) or not inner or not all(isinstance(member, BaseException) for member in inner):
            return
        indent = "  " * depth
        if depth > _GROUP_DEPTH:
            self.truncated = True
            return
        for pair in self.ends(list(enumerate(inner, 1)), _MEMBERS):
            if isinstance(pair, str):
                self.lines.append(f"{indent}[… {pair} members left out …]\n")
                continue
            number, member = pair
            self.lines.append(f"{indent}[{number}] {self.headline(member, _INNER_MESSAGE)}")
            self.lines.extend(f"{indent}{frame.text}" for frame in list(_frames(member))[-_MEMBER_FRAMES:])
            self.members(member, depth + 1)


def _frames(error: BaseException) -> Iterator[_Frame]:
    """The frames of an exception's traceback, outermost first."""
    entry = attribute(error, "__traceback__")
    while isinstance(entry, TracebackType):
        code = entry.tb_frame.f_code
        module = entry.tb_frame.f_globals.get("__name__")
        name = module if isinstance(module, str) else ""
        yield _Frame(name, code.co_name, code.co_filename, entry.tb_lineno or 0, entry.tb_frame)
        entry = entry.tb_next
