"""Keeping leases alive while bodies run, and telling the store what Celery was told.

One thread a process (a greenlet where threads are patched), started after fork at the first claim. It sleeps until
the first lease is a third through, renews all that are with one statement, and goes back to sleep: a body shorter
than that costs nothing here. What bodies have said of their progress goes along in that statement. The store's clock
decides; this clock only decides when to ask::

    claim           1/3 renew       2/3 renew       renewals fail ...                lease over
      |---------------|---------------|------------------------------------------------|
      body runs, owned()                                                                owned() is False:
                                                                                        the body is told to stop,
                                                                                        and settle will be refused
                                                                                        if anybody claimed since

A lease is let go, not renewed for ever: at the attempt's limit plus grace, so that a body that hangs is taken from its process. It
is renewed once more right before the limit: so the row of an attempt that was killed there tells it from one that crashed before.
"""

from __future__ import annotations

import logging
import math
import os
import threading
import time
from collections.abc import Iterable
from datetime import timedelta

from celery_guard.contract.timing import Timing
from celery_guard.errors import StoreError
from celery_guard.job.event import RenewedLate, Tell, tell_nobody
from celery_guard.job.tally import Count
from celery_guard.store.protocol import Store

from .ownership import Ownership

__all__ = ["LeaseKeeper"]

logger = logging.getLogger("celery_guard.lease")

#: How long a finished job may wait for the store to learn that Celery was told (seconds).
_FLUSH_EVERY = 1.0
#: More than this many are written at once.
_FLUSH_AT = 200


class LeaseKeeper:
    """The leases and the told jobs of one process. Safe for threads; starts afresh after fork."""

    def __init__(self, store: Store, tell: Tell = tell_nobody) -> None:
        self._store = store
        self._tell = tell
        self._reset()

    def _reset(self) -> None:
        self._pid = os.getpid()
        self._changed = threading.Condition()
        self._held: dict[tuple[str, int], _Held] = {}
        self._told: list[tuple[str, int]] = []
        self._told_since = 0.0
        self._thread: threading.Thread | None = None
        #: When the thread looks again by itself. To wake it costs more than most bodies.
        self._looks_at = 0.0
        self._closing = False

    def hold(self, own: Ownership, lease: timedelta, timing: Timing) -> None:
        """Keep the lease alive from now on: until the attempt's limit and grace, or without a limit as long as the body runs."""
        if self._pid != os.getpid():
            self._reset()
        held = _Held(own, lease, timing)
        with self._changed:
            self._held[own.id, own.fence] = held
            self._start()
            if held.renew_at < self._looks_at:
                self._changed.notify()

    def let_go(self, own: Ownership) -> None:
        """The attempt has ended; its lease is nobody's concern any more."""
        with self._changed:
            self._held.pop((own.id, own.fence), None)

    def told(self, id: str, fence: int) -> None:
        """Celery was told how this job ended; the store will learn it within about a second."""
        if self._pid != os.getpid():
            self._reset()
        with self._changed:
            if not self._told:
                self._told_since = time.monotonic()
            self._told.append((id, fence))
            self._start()
            if len(self._told) in (1, _FLUSH_AT):
                self._changed.notify()

    def renew_now(self, own: Ownership) -> None:
        """Renew one lease and learn whether it is still owned, and wanted."""
        with self._changed:
            held = self._held.get((own.id, own.fence))
        if held is not None and not held.over():
            self._renew([held])

    def flush(self) -> None:
        """Write what Celery was told. A failure is kept for the next time; the sweep covers what never arrives."""
        with self._changed:
            batch, self._told = self._told, []
        if not batch:
            return
        try:
            self._store.told(batch)
        except StoreError as error:
            logger.warning("the store could not be told about %d finished jobs yet: %s", len(batch), error)
            with self._changed:
                self._told[:0] = batch
                self._told_since = time.monotonic()

    def close(self) -> None:
        """Write what is left and end the thread. Called when the process goes down in order."""
        if self._pid != os.getpid():
            return
        with self._changed:
            self._closing = True
            self._changed.notify()
            thread = self._thread
        if thread is not None and thread is not threading.current_thread():
            thread.join(timeout=5)
        self.flush()

    def _start(self) -> None:
        if self._thread is None or not self._thread.is_alive():
            self._closing = False
            self._thread = threading.Thread(target=self._run, name="celery-guard-lease", daemon=True)
            self._thread.start()

    def _run(self) -> None:
        while True:
            with self._changed:
                if self._closing:
                    return
                pause = self._pause()
                self._looks_at = math.inf if pause is None else time.monotonic() + pause
                self._changed.wait(pause)
                if self._closing:
                    return
                now = time.monotonic()
                due = [held for held in self._held.values() if held.renew_at <= now and not held.over()]
                flush = bool(self._told) and (len(self._told) >= _FLUSH_AT or now - self._told_since >= _FLUSH_EVERY)
            if due:
                self._renew(due)
            if flush:
                self.flush()

    def _pause(self) -> float | None:
        now = time.monotonic()
        times = [held.renew_at for held in self._held.values() if not held.over()]
        if self._told:
            times.append(self._told_since + _FLUSH_EVERY if len(self._told) < _FLUSH_AT else now)
        return max(0.0, min(times) - now) if times else None

    def _renew(self, due: Iterable[_Held]) -> None:
        """One statement for leases of one length. A failure is tried again soon; only time makes a lease lost."""
        by_length: dict[timedelta, list[_Held]] = {}
        late: list[str] = []
        for held in due:
            by_length.setdefault(held.lease, []).append(held)
        for lease, group in by_length.items():
            asked = time.monotonic()
            leases = [(h.own.id, h.own.fence, h.own.granted.owner) for h in group]
            # all of it, each time: of two renewals at once, the one that comes last may have asked first
            said = {mine: text for mine, h in zip(leases, group, strict=True) if (text := h.own.progress) is not None}
            try:
                kept = self._store.renew(leases, lease, said)
            except StoreError as error:
                logger.warning("%d leases could not be renewed: %s", len(group), error)
                for held in group:
                    held.try_again()
                continue
            cancel = {(renewal.id, renewal.fence): renewal.cancel for renewal in kept}
            for held in group:
                by = timedelta(seconds=asked - held.own.renewed) - lease
                held.answered(asked, cancel.get((held.own.id, held.own.fence)))
                if by > timedelta(0) and not held.own.lost:
                    late.append(held.own.id)
                    self._tell(RenewedLate(held.own.id, held.own.task, held.own.fence, by))
        if late:
            self._count_late(late)

    def _count_late(self, ids: list[str]) -> None:
        """In one write, after all renewals: when a store comes back every lease is late, and none can wait for figures."""
        try:
            self._store.count(Count.RENEWED_LATE, ids)
        except StoreError as error:
            logger.warning("%d leases that were renewed late could not be counted: %s", len(ids), error)


class _Held:
    """A lease that is kept alive."""

    __slots__ = ("_before_limit", "_third", "lease", "own", "renew_at", "until")

    def __init__(self, own: Ownership, lease: timedelta, timing: Timing) -> None:
        self.own = own
        self.lease = lease
        started = time.monotonic() - own.elapsed.total_seconds()
        attempt, last = timing.attempt, timing.last_renewal
        self.until = None if attempt is None else started + (attempt + timing.grace).total_seconds()
        self._before_limit = None if last is None else started + last.total_seconds()
        self._third = lease.total_seconds() / 3
        self._renew_after(started)

    def over(self) -> bool:
        """Lost, or past the attempt's limit and grace: not to be renewed."""
        return self.own.lost or (self.until is not None and time.monotonic() >= self.until)

    def try_again(self) -> None:
        self.renew_at = time.monotonic() + self._third / 4

    def answered(self, asked: float, cancel: bool | None) -> None:
        """``cancel`` is None when the store does not know this lease any more."""
        if cancel is None:
            self.own.lost = True
            return
        self.own.renewed = asked
        self.own.cancelled = self.own.cancelled or cancel
        self._renew_after(asked)

    def _renew_after(self, asked: float) -> None:
        self.renew_at = asked + self._third
        if self._before_limit is not None and asked < self._before_limit:
            self.renew_at = min(self.renew_at, self._before_limit)
