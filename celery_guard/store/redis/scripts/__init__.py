"""The scripts: one file one operation, one operation one round trip. A script is found here by its file's name.

A file that begins with ``-- uses:`` has the named files put before it, in that order; those are parts, and no operations.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

__all__ = ["PARTS", "Script", "names", "script"]

_USES = "-- uses:"

#: Files that other scripts begin with.
PARTS = frozenset(
    {"accept", "again", "batch", "move", "outcome_of", "quarantined_rows", "record", "row", "store", "tally"}
)


@dataclass(frozen=True, slots=True)
class Script:
    """The whole text of one operation, and the digest by which the server knows it."""

    name: str
    text: str
    digest: str


@cache
def script(name: str) -> Script:
    """The script of an operation, read once."""
    own = _read(name)
    first = own.partition("\n")[0]
    assert first.startswith(_USES), f"{name}.lua does not say what it uses"
    text = "\n".join([*map(_read, first.removeprefix(_USES).split()), own])
    return Script(name, text, hashlib.sha1(text.encode(), usedforsecurity=False).hexdigest())


def names() -> list[str]:
    """Every operation there is."""
    found = (entry.name.removesuffix(".lua") for entry in files(__name__).iterdir() if entry.name.endswith(".lua"))
    return sorted(name for name in found if name not in PARTS)


def _read(name: str) -> str:
    return files(__name__).joinpath(f"{name}.lua").read_text(encoding="utf-8")
