"""Text of foreign origin, made safe to store: read without trust, cleaned, cut to a number of bytes.

Nothing here builds more of a large text than it keeps, where that is in its hands: an exception with one argument of 50 MB has
that argument sliced, not printed.
"""

from __future__ import annotations

import re
import reprlib
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
    short = reprlib.Repr()
    short.maxlevel = 6
    short.maxlist = short.maxtuple = short.maxdict = short.maxset = short.maxfrozenset = 50
    short.maxstring = short.maxother = short.maxlong = most
    if isinstance(value, (bytes, bytearray)):
        value = value[:most]
    elif isinstance(value, tuple):
        value = tuple(item[:most] if isinstance(item, (bytes, bytearray)) else item for item in value[:51])
    return _head(short.repr(value), most)
