"""The sweep: brings back what was lost, and ends what cannot be brought back.

It alone takes a job from an owner whose lease has lapsed, and it alone judges that a message was lost. Both are one
compare-and-set on what it saw: if the owner came back meanwhile, or another sweep was faster, nothing changes.

A published message that nobody claims is not a lost message: the queue may be long. It is published again only if the
queue is empty, or a job that was published later is already running; at doubling intervals, a bounded number of times.
"""

from __future__ import annotations

import logging
import random
import time
from collections.abc import Callable
from datetime import timedelta
from typing import TYPE_CHECKING

from celery_guard.contract.backoff import Backoff
from celery_guard.contract.contract import Effective
from celery_guard.contract.failure_class import FailureClass
from celery_guard.errors import StoreError
from celery_guard.job import event
from celery_guard.job.decide import Next, after_crash
from celery_guard.job.event import Tell, tell_nobody
from celery_guard.job.failure import describe
from celery_guard.job.row import Attempt, StoredFailure
from celery_guard.job.settlement import Settlement
from celery_guard.job.state import Reason, State
from celery_guard.settings import Settings
from celery_guard.store.protocol import Store

from .admin.replay import Driver

if TYPE_CHECKING:
    from .relay import Publisher

__all__ = ["Sweep"]

logger = logging.getLogger("celery_guard.sweep")

#: Rows looked at in one pass; the rest waits for the next.
_LIMIT = 500
#: So many times for what has ended, which may be much more.
_FOLDS = 20
#: After a step of a replay a relay does other things for so many times longer.
_SHARE = 4


class Sweep:
    """Recovers, ends and forgets. Any number may run at once."""

    def __init__(
        self,
        store: Store,
        publisher: Publisher,
        settings: Settings,
        contract_named: Callable[[str], Effective],
        knows: Callable[[str], bool],
        name: str,
        tell: Tell = tell_nobody,
    ) -> None:
        self._store = store
        self._publisher = publisher
        self._settings = settings
        self.contract_named = contract_named
        self.knows = knows
        self._name = name
        self._tell = tell
        self._draw = random.Random()
        self._next = 0.0
        self._driver = Driver(store)
        self._replays = 0
        self._drive_next = 0.0
        self._crash_backoff = Backoff(settings.crash_base.total_seconds(), settings.crash_cap.total_seconds())

    def maybe(self) -> None:
        """Sweep, if the last time is long enough ago. Raises ``StoreError``."""
        now = time.monotonic()
        if now >= self._next:
            self._next = now + self._settings.sweep_every.total_seconds() * self._draw.uniform(0.8, 1.2)
            self.once()
        elif self._replays and now >= self._drive_next:
            self.drive()

    def drive(self) -> int:
        """One step of each replay that runs; how many there are. One that cannot be driven keeps nobody from recovering and publishing."""
        began = time.monotonic()
        try:
            self._replays = self._driver.once()
        except StoreError as error:
            logger.warning("replays could not be driven, the next sweep tries again: %s", error)
            self._replays = 0
        ended = time.monotonic()
        self._drive_next = ended + _SHARE * (ended - began)
        return self._replays

    def once(self) -> int:
        """One pass over everything; how many rows were moved or deleted. Raises ``StoreError``."""
        self.drive()
        moved = self.recover_lapsed() + self.recover_unclaimed()
        self._fold()
        return moved + self.forget()

    def _fold(self) -> None:
        """Add up what ended rows say, so that who reads the totals need not look at each."""
        for _ in range(_FOLDS):
            if self._store.fold(_LIMIT) < _LIMIT:
                return

    def forget(self) -> int:
        """Delete what was kept for long enough: ended jobs, messages in quarantine, the audit, replays; how many went."""
        return (
            self._store.retain(_LIMIT)
            + self._store.retain_quarantined(_LIMIT, self._settings.keep_dead)
            + self._store.retain_audit(self._settings.keep_audit, _LIMIT)
            + self._store.retain_replays(self._settings.keep_dead, _LIMIT)
        )

    def recover_lapsed(self) -> int:
        """Take jobs from owners whose lease has lapsed: to run again, or to their end."""
        moved = 0
        for attempt in self._store.lapsed(_LIMIT):
            contract = self.contract_named(attempt.task)
            lease = contract.timing.lease or self._settings.lease
            next = after_crash(attempt, contract, lease, self._crash_backoff, self._draw)
            if self._recover(attempt, self._settlement(attempt, next, None, crashed=True)):
                moved += 1
        return moved

    def recover_unclaimed(self) -> int:
        """Publish again what was published and never claimed, or give it up."""
        moved = 0
        waiting: list[Attempt] = []
        depths: dict[str, int | None] = {}
        for attempt in self._store.suspects(_LIMIT, self._settings.suspect_after):
            if attempt.queue not in depths:
                try:
                    depths[attempt.queue] = self._publisher.depth(attempt.queue)
                except ConnectionError as error:
                    logger.debug("the broker is away, and nothing is called lost: %s", error)
                    break
            if depths[attempt.queue] and not attempt.overtaken and not _is_over(attempt):
                waiting.append(attempt)
            else:
                moved += self._unclaimed(attempt)
        if waiting:
            self._store.defer(waiting, self._settings.suspect_after)
        return moved

    def _unclaimed(self, attempt: Attempt) -> bool:
        if _is_over(attempt):
            return self._give_up(attempt, Reason.EXPIRED, "the deadline was over before any worker took the job")
        if attempt.publications >= self._settings.max_publications:
            if self.knows(attempt.task):
                return self._give_up(attempt, Reason.NEVER_CLAIMED, "published many times, and no worker took it")
            return self._give_up(attempt, Reason.UNKNOWN_TASK, "no worker knows a task of this name")
        again = Next(State.PENDING, attempt.reason or Reason.NEW)
        return self._recover(attempt, self._settlement(attempt, again, None, crashed=False))

    def _give_up(self, attempt: Attempt, reason: Reason, why: str) -> bool:
        state = State.DROPPED if self.contract_named(attempt.task).best_effort else State.DEAD
        failure = self._describe(
            attempt, TimeoutError(f"{why} (queue {attempt.queue}, {attempt.publications} publications)")
        )
        return self._recover(attempt, self._settlement(attempt, Next(state, reason), failure, crashed=False))

    def _recover(self, attempt: Attempt, settlement: Settlement) -> bool:
        moved = self._store.recover(attempt, settlement)
        if moved:
            self._tell(event.recovered(attempt, settlement))
        return moved

    def _settlement(self, attempt: Attempt, next: Next, failure: StoredFailure | None, *, crashed: bool) -> Settlement:
        again = next.state is State.PENDING
        if failure is None and crashed:
            failure = self._describe(attempt, _lapse_error(attempt, next), next.failure_class)
        return Settlement(
            attempt.id, attempt.fence, attempt.owner, next.state, next.reason, next.delay, tell_within=timedelta(0),
            keep=self._settings.keep if next.state is State.CANCELLED else self._settings.keep_dead, failure=failure,
            crashed=crashed and next.reason in (Reason.LOST, Reason.CRASHED), retried=again and next.reason is Reason.RETRY,
        )  # fmt: skip

    def _describe(self, attempt: Attempt, error: Exception, found: FailureClass | None = None) -> StoredFailure:
        return describe(
            error, failure_class=found or FailureClass.UNKNOWN, task=attempt.task, worker=attempt.owner or self._name, fence=attempt.fence,
            attempt=attempt.attempts,
        )  # fmt: skip


def _is_over(attempt: Attempt) -> bool:
    return attempt.remaining is not None and attempt.remaining <= timedelta(0)


def _lapse_error(attempt: Attempt, next: Next) -> Exception:
    if next.reason in (Reason.TIME_LIMIT, Reason.RETRY):
        return TimeoutError(
            f"time limit: the attempt ran for {attempt.age.total_seconds():.1f} s and was ended, or hung"
        )
    return RuntimeError(
        f"worker lost: the process {attempt.owner} did not renew its lease, which ended {attempt.leased.total_seconds():.1f} s after the start"
    )
