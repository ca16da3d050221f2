"""Publishers whose clocks are wrong: they are warned about.

Nothing is decided by a publisher's clock: leases, due times and deadlines are durations that the store adds to its own. But an instant that a
program has read elsewhere and passes on (``eta=``, ``expires=``) is turned into a duration by the clock of the publishing process. How
wrong that is, is seen where a job is claimed: the envelope says when it was published, and the row when it was accepted.
"""

from __future__ import annotations

import logging
import time
from datetime import timedelta

from celery_guard.job.instant import Instant

__all__ = ["LIMIT", "Skew"]

logger = logging.getLogger("celery_guard.skew")

#: Clocks that differ by no more are taken to agree: accepting a job takes its time, too.
LIMIT = timedelta(seconds=30)

#: How long a publisher is not spoken of again (seconds), and of how many that is remembered.
_SILENT = 3600.0
_REMEMBERED = 1000


class Skew:
    """What one process has seen of publishers' clocks. Safe for threads."""

    def __init__(self) -> None:
        self._warned: dict[str, float] = {}

    def compare(self, publisher: str, published: float | None, accepted: Instant | None) -> None:
        """Warn if the publisher's clock and the store's differ by more than the limit, once an hour for each publisher.

        ``published`` is in seconds since the epoch, by the publisher's clock.
        """
        if published is None or accepted is None:
            return
        ahead = timedelta(seconds=published) - timedelta(microseconds=accepted)
        if abs(ahead) <= LIMIT or time.monotonic() - self._warned.get(publisher, -_SILENT) < _SILENT:
            return
        if len(self._warned) >= _REMEMBERED:
            self._warned.clear()
        self._warned[publisher] = time.monotonic()
        logger.warning(
            "the clock of the publisher %s is %s %s the store's: an eta or expires that it passes on as an instant is off by as much. "
            "Have its clock synchronized, or pass countdown and expires in seconds",
            publisher, abs(ahead), "ahead of" if ahead > timedelta(0) else "behind",
        )  # fmt: skip
