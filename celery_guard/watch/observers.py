"""Telling those who watch: one place through which every event goes.

An observer is told in the thread that did what is told, right after it was written. It must not wait: no network, no disk, no lock
that others hold for long. What it raises is logged and goes no further.
"""

from __future__ import annotations

import logging
import time
from typing import Protocol

from celery_guard.job.event import Event, Hears, hears_all

__all__ = ["Observer", "Observers"]

logger = logging.getLogger("celery_guard.watch")

#: How often the failure of one observer is logged, at most (seconds).
_AGAIN = 60.0


class Observer(Protocol):
    """One that watches."""

    def told(self, event: Event) -> None:
        """Take note of what has happened. Match on its class; ignore what you do not know, for there may be more one day."""
        ...


class Observers:
    """All that watch in one process."""

    def __init__(self) -> None:
        self._all: tuple[Observer, ...] = ()
        self._hear: tuple[Hears, ...] = ()
        self._logged: dict[int, float] = {}

    def add(self, observer: Observer, hears: Hears = hears_all) -> None:
        """Tell this one too, from now on; ``hears`` says of which kinds it takes note at the moment."""
        self._all = (*self._all, observer)
        self._hear = (*self._hear, hears)

    def hear(self, kind: type[Event]) -> bool:
        """Whether anybody takes note of such an event now; where nobody does, it need not be made."""
        return any(hears(kind) for hears in self._hear)

    def tell(self, event: Event) -> None:
        """Tell everyone. Whatever an observer raises is logged, at most once a minute, and nothing else comes of it."""
        for observer in self._all:
            try:
                observer.told(event)
            except Exception as error:  # noqa: BLE001 - whatever it is, it is the observer's, and no job pays for it
                self._failed(observer, event, error)

    def _failed(self, observer: Observer, event: Event, error: Exception) -> None:
        now = time.monotonic()
        if now - self._logged.get(id(observer), -_AGAIN) >= _AGAIN:
            self._logged[id(observer)] = now
            logger.error(
                "%s failed at %s; jobs go on", type(observer).__name__, type(event).__name__, exc_info=error
            )  # fmt: skip
