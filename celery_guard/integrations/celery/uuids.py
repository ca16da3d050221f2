"""Random UUIDs as texts, drawn many at a time: a system call for each is what most of one costs.

What was drawn and is not used yet is no other process's: a child draws anew, and each user has a source of its own, which does not outlive its work. So a
process that is copied as a whole (a snapshot of a machine) takes none along that its copies would use too.
"""

from __future__ import annotations

import os

__all__ = ["Uuids"]

_AT_ONCE = 128


class Uuids:
    """A source of them. Not for sharing between threads."""

    def __init__(self) -> None:
        self._digits = ""
        self._place = 0
        self._pid = 0

    def __call__(self) -> str:
        """As ``str(uuid.uuid4())``."""
        # not told by a hook: there are servers that fork without calling any
        if self._place == len(self._digits) or self._pid != os.getpid():
            self._digits, self._place, self._pid = os.urandom(16 * _AT_ONCE).hex(), 0, os.getpid()
        place, self._place = self._place, self._place + 32
        digits = self._digits[place : place + 32]
        variant = "89ab"[int(digits[16], 16) & 3]
        return f"{digits[:8]}-{digits[8:12]}-4{digits[13:16]}-{variant}{digits[17:20]}-{digits[20:]}"
