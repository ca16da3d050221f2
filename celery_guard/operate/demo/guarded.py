"""The import with celery-guard: what is done is what the store says."""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from celery_guard.errors import StoreError
from celery_guard.job.state import ENDED, State
from celery_guard.store import open_store
from celery_guard.store.protocol import Store

from .plan import Plan
from .runs import Clock, Import, Look
from .show import Progress
from .tally import Tally

__all__ = ["Guarded"]

#: The guard's settings: short, so that what is lost comes back while you watch.
_SHORT = {
    "CELERY_GUARD_LEASE": "3s",
    "CELERY_GUARD_SUSPECT_AFTER": "3s",
    # a batch that takes longer than the hold is published by the other relay too
    "CELERY_GUARD_RELAY_BATCH": "100",
    "CELERY_GUARD_RELAY_HOLD": "5s",
    "CELERY_GUARD_SWEEP_EVERY": "500ms",
    "CELERY_GUARD_POLL": "200ms",
    "CELERY_GUARD_CRASH_BASE": "200ms",
    "CELERY_GUARD_CRASH_CAP": "1s",
    "CELERY_GUARD_DRAIN": "10s",
}


class Guarded(Import):
    """With celery-guard."""

    title = "celery-guard"
    app = "airports.tasks"
    loader = "airports.load"
    settings = _SHORT

    def __init__(self, plan: Plan, folder: Path, nodes: int, clock: Clock, progress: Progress) -> None:
        super().__init__(plan, folder, nodes, clock, progress)
        self._store: Store = open_store(f"sqlite:///{folder / 'airports.db'}")
        self._last = Look(0, False, None)

    def run(self) -> Tally:
        try:
            return super().run()
        finally:
            self._store.close()

    def load(self) -> None:
        """Accept the file, after the same was tried and rolled back."""
        self.step("roll-back", self.file)
        self.progress.say("a first batch was rolled back")
        super().load()

    def look(self) -> Look:
        with suppress(StoreError):  # a busy database is asked again soon
            counts = self._store.counts()
            total, done = sum(counts.values()), sum(counts.get(state, 0) for state in ENDED)
            self._last = Look(done, 0 < total == done, tuple(sorted(counts.items())))
        return self._last

    def relays(self) -> Sequence[int]:
        """By the slots that they hold: a relay's token names its host and its process."""
        try:
            beats = self._store.heartbeats()
        except StoreError:
            return ()
        return [int(beat.token.split(":")[1]) for beat in beats if beat.is_relay]

    def jobs(self) -> tuple[int, list[str]]:
        dead: list[str] = []
        after: str | None = None
        while page := self._store.jobs(states=[State.DEAD], after=after):
            dead += [self._row_of(job.id) for job in page]
            after = page[-1].id
        return sum(self._store.counts().values()), dead

    def _row_of(self, id: str) -> str:
        payload = self._store.payload(id)
        assert payload is not None
        _args, kwargs, _embed = json.loads(payload.body)
        return str(kwargs["row"]["iata"])
