"""How long to wait before trying again: full jitter under a cap.

The delay before try ``n`` (0 is the first repetition) is uniform between nothing and ``min(cap, base * 2**n)``, so that
those who failed together do not come back together. A hint of the other side is a floor: the jitter comes on top of
it, and the cap holds for both.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from datetime import timedelta
from random import Random

__all__ = ["Backoff"]

_AT_ONCE = timedelta(0)


@dataclass(frozen=True, slots=True)
class Backoff:
    """Delays that grow."""

    #: Seconds: the upper end of the first delay; doubled for each further one.
    base: float
    #: Seconds: no delay is longer.
    cap: float
    #: False: every delay is its upper end.
    jitter: bool = True

    def delay(self, n: int, draw: Random, floor: timedelta | None = None) -> timedelta:
        """How long to wait before repetition ``n``, from 0: never longer than the cap, never shorter than ``floor`` under it."""
        cap = timedelta(seconds=self.cap)
        least = _AT_ONCE if floor is None else min(max(floor, _AT_ONCE), cap)
        upper = self._upper(n)
        if not self.jitter:
            return max(least, min(timedelta(seconds=upper), cap))
        return min(least + timedelta(seconds=draw.random() * upper), cap)

    def _upper(self, n: int) -> float:
        try:
            return min(self.cap, math.ldexp(self.base, max(n, 0)))
        except OverflowError:
            return self.cap
