"""Text of foreign origin, made safe to store: read without trust, cleaned, cut to a number of bytes.

Nothing here builds more of a large text than it keeps, where that is in its hands: an exception with one argument of 50 MB has
that argument sliced, not printed.
"""

from __future__ import annotations

import re
import reprlib
from collections.abc import Iterable
from itertools import islice
from typing import Any

from celery_guard.contract.foreign import attribute

__all__ = ["clean", "cut", "cut_middle", "message_of", "type_name_of"]

#: NUL is refused by PostgreSQL, lone surrogates by every driver.
_UNSAFE = re.compile("[\x00\ud800-\udfff]")
_CUT = " […cut]"
_LONGEST_NAME = 255


def clean(text: str) -> str:
    """The text with what databases refuse replaced by U+FFFD."""
    return _UNSAFE.sub("\ufffd", text)


def cut(text: str, limit: int) -> tuple[str, bool]:
    """At most ``limit`` bytes of UTF-8 from the beginning, cut between characters and marked; whether it was cut."""
    data = text.encode()
    if len(data) <= limit:
        return text, False
    return data[: limit - len(_CUT.encode())].decode(errors="ignore") + _CUT, True


def cut_middle(text: str, limit: int) -> tuple[str, bool]:
    """At most ``limit`` bytes of UTF-8, from the beginning and the end; whether something is left out."""
    data = text.encode()
    if len(data) <= limit:
        return text, False
    half = (limit - 60) // 2
    head, tail = data[:half].decode(errors="ignore"), data[-half:].decode(errors="ignore")
    return f"{head}\n[… {len(data) - 2 * half} bytes left out …]\n{tail}", True


def type_name_of(error: BaseException) -> str:
    """The qualified name of an exception's class, in bounded length; builtins without their module."""
    kind = type(error)
    module = attribute(kind, "__module__")
    name = kind.__qualname__ if module == "builtins" or not isinstance(module, str) else f"{module}.{kind.__qualname__}"
    return clean(name[:_LONGEST_NAME])


def message_of(error: BaseException, limit: int) -> tuple[str, bool]:
    """The exception's own message, cleaned, in at most ``limit`` bytes; whether it was cut.

    A ``__str__`` that raises is named instead, whatever it raises: its failure must not hide the one that is described.
    """
    try:
        text = _text(error, limit + 1)
    except BaseException as broken:  # noqa: BLE001 - see the docstring
        text = f"[the message cannot be read: its __str__ raises {type_name_of(broken)}]"
    return cut(clean(text), limit)


def _text(error: BaseException, most: int) -> str:
    """``str(error)``, of which at most ``most`` characters are needed."""
    kind = type(error).__str__
    if kind is BaseException.__str__ or kind is KeyError.__str__:
        args = error.args
        if len(args) != 1:
            return _shortened(args, most) if args else ""
        if kind is KeyError.__str__ or isinstance(args[0], (list, tuple, dict, set, frozenset, bytes, bytearray)):
            return _shortened(args[0], most)
        return _head(args[0] if isinstance(args[0], str) else str(args[0]), most)
    return _head(str(error), most)


def _head(text: str, most: int) -> str:
    # A subclass of str may have its own ideas of slicing.
    return str.__getitem__(text, slice(0, most))


def _shortened(value: Any, most: int) -> str:
    """``repr``, without printing the whole of large texts and containers."""
    return _head(_Short(most).repr(value), most)


class _Short(reprlib.Repr):
    """What is printed of containers: their first items, in their own order, as ``repr`` prints them."""

    def __init__(self, most: int) -> None:
        super().__init__()
        self.maxlevel = 6
        self.maxlist = self.maxtuple = self.maxset = self.maxfrozenset = self.maxdict = 50
        self.maxstring = self.maxother = self.maxlong = most
        self._items_left = most

    def repr1(self, x: Any, level: int) -> str:
        """Every item costs a character: containers that share their items would grow without end."""
        self._items_left -= 1
        return super().repr1(x, level) if self._items_left >= 0 else "..."

    def repr_dict(self, x: dict[Any, Any], level: int) -> str:
        """The inherited one sorts the whole mapping."""
        if level <= 0:
            return "{...}"
        pairs = [f"{self.repr1(key, level - 1)}: {self.repr1(item, level - 1)}" for key, item in self._first(x.items())]
        return f"{{{self._joined(pairs, len(x))}}}"

    def repr_set(self, x: set[Any], level: int) -> str:
        """The inherited one sorts the whole set."""
        if level <= 0 or not x:
            return "{...}" if x else "set()"
        return f"{{{self._joined([self.repr1(item, level - 1) for item in self._first(x)], len(x))}}}"

    def repr_frozenset(self, x: frozenset[Any], level: int) -> str:
        """As a set."""
        return f"frozenset({self.repr_set(x, level) if x else ''})"  # type: ignore[arg-type]

    def repr_bytes(self, x: bytes, level: int) -> str:
        """The inherited one prints the whole."""
        return repr(x[: self.maxstring])

    def repr_bytearray(self, x: bytearray, level: int) -> str:
        """As bytes."""
        return repr(x[: self.maxstring])

    def _first(self, items: Iterable[Any]) -> Iterable[Any]:
        return islice(items, self.maxdict)

    def _joined(self, items: list[str], length: int) -> str:
        return ", ".join([*items, *(["..."] if length > len(items) else [])])
