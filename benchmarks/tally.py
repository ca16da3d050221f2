"""How many bodies have run, and when each began, in memory that worker processes share with the benchmark: no-op jobs stay cheap."""

from __future__ import annotations

import mmap
import os
import time
from pathlib import Path

__all__ = ["Tally"]

#: Each process of a pool counts in a place of its own.
_PROCESSES = 64
_WORD = 8


class Tally:
    """A file in memory. ``places`` is for how many jobs the instant of their beginning can be noted."""

    def __init__(self, path: Path, places: int = 0) -> None:
        size = (_PROCESSES + places) * _WORD
        self.path = path
        self.process = 0
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT)
        try:
            if os.fstat(descriptor).st_size < size:
                os.ftruncate(descriptor, size)
            self._map = mmap.mmap(descriptor, 0)
        finally:
            os.close(descriptor)
        self._words = memoryview(self._map).cast("q")

    def count(self) -> None:
        """One more body has run in this process."""
        self._words[self.process] += 1

    def began(self, place: int) -> None:
        """The body of the job at this place has begun, now."""
        self._words[_PROCESSES + place] = time.monotonic_ns()

    @property
    def total(self) -> int:
        """How many bodies have run."""
        return sum(self._words[:_PROCESSES])

    def beginning(self, place: int) -> int:
        """When the body of that job began, by the monotonic clock in nanoseconds; 0 for not yet."""
        return self._words[_PROCESSES + place]
