"""The import with plain Celery: nobody knows what is done, only how many messages are left."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import ClassVar

from .plan import Kill, Plan
from .runs import Clock, Import, Look
from .show import Progress

__all__ = ["PlainEarly", "PlainLate"]


class PlainEarly(Import):
    """Plain Celery as it is by default."""

    title = "Celery, early acks"
    app = loader = "airports.plain"
    patience = 30

    #: So long nothing may wait before the workers are asked to end (seconds); what they still do then is seen afterwards.
    _QUIET = 2.0

    def __init__(self, plan: Plan, folder: Path, nodes: int, clock: Clock, progress: Progress) -> None:
        super().__init__(plan, folder, nodes, clock, progress)
        self._quiet_since: float | None = None
        self._stalled = False

    def can_kill(self, kill: Kill) -> bool:
        return kill.kind != "relay"

    def look(self) -> Look:
        """Nobody knows what plain Celery has done; what can be seen is how many messages are left."""
        waiting = sum(len(os.listdir(self.folder / "broker" / name)) for name in ("queue", "taken"))
        now = time.monotonic()
        self._quiet_since = None if waiting else self._quiet_since or now
        quiet = self._quiet_since is not None and now - self._quiet_since >= self._QUIET
        return Look(max(0, len(self.plan.rows) - waiting), quiet or self._stalled, waiting)

    def stalled(self, look: Look) -> None:
        """Plain Celery may hang; what is missing then is counted as missing."""
        self.progress.say("nothing moves any more; what is there is counted")
        self._stalled = True


class PlainLate(PlainEarly):
    """Plain Celery, told to acknowledge after the body and to deliver again what a lost child had."""

    title = "Celery, late acks"
    settings: ClassVar[dict[str, str]] = {"AIRPORTS_LATE_ACKS": "1"}
