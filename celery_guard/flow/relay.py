"""The relay: publishes what is due, and sees to what nobody looks after.

    take (token, for a time) -> publish a batch -> mark what the broker took -> back to take

Behind a full batch comes another, most likely: it is taken by a thread beside while this one is published, and given back if it comes to nothing.

Any number may run; two at a time are active on a store, the rest stand by. A row that a relay has taken and not marked, because
the relay was killed or paused, is due again after the hold; its message may then go out twice, which the claim makes harmless. A relay that
wakes up late finds its token gone from the rows and marks nothing.

Four kinds of trouble are kept apart:

==================  ===========================================================================================
the broker is down  rows are given back unharmed; the relay waits, longer each time, up to half a minute
a row is refused    it alone is put off, longer each time; after ``publish_attempts`` it is dead (unpublishable)
a message is gone   its row is dead (unpublishable) at once; so is one whose message was damaged
the store is down   nothing was marked; what was published is claimed or published again
==================  ===========================================================================================
"""

from __future__ import annotations

import itertools
import logging
import random
import threading
import time
from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from datetime import timedelta
from typing import Protocol

from celery_guard.contract.backoff import Backoff
from celery_guard.errors import DeadlinePassed, JobFailed, StoreError
from celery_guard.job import event
from celery_guard.job.decide import final
from celery_guard.job.event import Hears, Tell, hears_all, tell_nobody
from celery_guard.job.failure import describe
from celery_guard.job.row import Outgoing, StoredFailure
from celery_guard.job.settlement import Settlement
from celery_guard.job.state import ENDED, Kind, Reason, State
from celery_guard.settings import Settings
from celery_guard.store.bounds import SLOTS
from celery_guard.store.protocol import Store

from .sweep import Sweep

__all__ = ["Published", "Publisher", "Relay"]

logger = logging.getLogger("celery_guard.relay")

#: How soon an idle relay looks again at first; doubled up to the setting ``poll``.
_IDLE_FROM = timedelta(milliseconds=20)

_REFUSED = Backoff(base=1, cap=300)
_OUTAGE = Backoff(base=0.5, cap=30)


@dataclass(frozen=True, slots=True)
class Published:
    """What became of a batch."""

    sent: tuple[str, ...] = ()
    #: (id, error) of rows that the broker, or the codec, will not have; with ``JobFailed``, never will.
    refused: tuple[tuple[str, Exception], ...] = ()
    #: Why the rest of the batch was not tried: the broker cannot be reached.
    outage: Exception | None = None


@dataclass(frozen=True, slots=True)
class _Batch:
    """What was taken under one token."""

    token: str
    #: When it was asked for, by this process's clock.
    asked: float
    rows: Sequence[Outgoing]


class Publisher(Protocol):
    """Sends stored messages to the broker."""

    def publish(self, rows: Sequence[Outgoing]) -> Published:
        """Publish a batch. ``sent`` are those that the broker has confirmed, where it confirms. Raises nothing for one row's sake."""
        ...

    def depth(self, queue: str) -> int | None:
        """How many messages wait in a queue; None where the broker does not say.

        Raises ``ConnectionError`` when the broker cannot be reached: then nothing is known about its messages.
        """
        ...

    def tell(self, row: Outgoing, error: Exception) -> bool:
        """Tell Celery's result backend about a dead job whose message cannot be delivered to any worker; False if it is out."""
        ...


class Relay:
    """One relay. :meth:`run` works until told to stop; :meth:`once` does one batch."""

    def __init__(
        self, store: Store, publisher: Publisher, sweep: Sweep, settings: Settings, name: str, tell: Tell = tell_nobody,
        hears: Hears = hears_all,
    ) -> None:  # fmt: skip
        self._store = store
        self._publisher = publisher
        self._sweep = sweep
        self._settings = settings
        self._name = name
        self._tell_of = tell
        self._hears = hears
        self._batches = itertools.count()
        self._draw = random.Random()
        self._outages = 0
        self._idle = _IDLE_FROM
        #: The last batch was a full one, or the store hints at work: take without asking first.
        self._more = False
        self._slot: str | None = None
        self._hold_again = 0.0
        #: The batch that is being taken beside.
        self._ahead: Future[_Batch] | None = None
        #: The last batch took half of its hold to publish. One that waits for another so slow is another relay's before it is marked.
        self._slow = False

    def run(self, stop: threading.Event) -> None:
        """Relay and sweep until ``stop`` is set, then finish the batch at hand, give the slot back and return."""
        try:
            while not stop.is_set():
                self._turn(stop)
        finally:
            self._give_back_ahead()
            self._release()

    def once(self) -> int:
        """Take one batch and publish it; how many rows were taken.

        Raises:
            StoreError: the store could not be asked, or not be told; nothing is lost.
        """
        batch = self._take()
        self._publish(batch)
        return len(batch.rows)

    def _step(self) -> int:
        """As :meth:`once`; where the batch is a full one, and the broker is not slow, the next is taken meanwhile."""
        ahead, self._ahead = self._ahead, None
        batch = None if ahead is None else ahead.result()
        if batch is None or not self._holds(batch):
            batch = self._take()
        if len(batch.rows) >= self._settings.relay_batch and not self._slow:
            self._ahead = self._take_beside()
        began = time.monotonic()
        self._publish(batch)
        self._slow = time.monotonic() - began > self._settings.relay_hold.total_seconds() / 2
        if self._outages:
            self._give_back_ahead()
        return len(batch.rows)

    def _take(self) -> _Batch:
        token = f"{self._name}:{next(self._batches)}"
        asked = time.monotonic()
        return _Batch(token, asked, self._store.take(token, self._settings.relay_batch, self._settings.relay_hold))

    def _take_beside(self) -> Future[_Batch]:
        taken: Future[_Batch] = Future()

        def take() -> None:
            try:
                taken.set_result(self._take())
            except BaseException as error:  # noqa: BLE001 - it is raised to the relay that waits for it
                taken.set_exception(error)

        # not an executor's, whose threads the process waits for when it ends: the store may hang
        threading.Thread(target=take, name="celery-guard-take", daemon=True).start()
        return taken

    def _holds(self, batch: _Batch) -> bool:
        """Whether nobody else has taken any of it; what is held no longer is due again."""
        return time.monotonic() - batch.asked <= self._settings.relay_hold.total_seconds()

    def _give_back_ahead(self) -> None:
        """Nobody publishes what was taken beside: it is due again now. Where the store is out, it is when the hold is over."""
        ahead, self._ahead = self._ahead, None
        if ahead is None:
            return
        try:
            batch = ahead.result()
            self._store.postpone(batch.token, [(row.id, timedelta(0)) for row in batch.rows], refused=False)
        except StoreError as error:
            logger.warning("what was taken could not be given back, it is due again when relay_hold is over: %s", error)

    def _publish(self, batch: _Batch) -> None:
        token, rows = batch.token, batch.rows
        if not rows:
            return
        due = [
            row for row in rows if not (self._expired(token, row) or self._gone(token, row) or self._undeliverable(row))
        ]
        published = self._publisher.publish(due)
        if published.sent:
            self._store.sent(token, published.sent, self._settings.suspect_after)
        by_id = {row.id: row for row in due}
        if self._hears(event.Published):
            for id in published.sent:
                self._tell_of(event.published(by_id[id]))
        for id, error in published.refused:
            self._refused(token, by_id[id], error)
        self._outage(token, due, published)
        if not self._holds(batch):
            logger.warning(
                "the relay was paused, or is slow: it had %d jobs longer than relay_hold (%s), and another may have published "
                "them too", len(rows), self._settings.relay_hold,
            )  # fmt: skip

    def drain(self) -> int:
        """Publish until nothing is due any more, or the broker is out; how many rows were taken."""
        total = 0
        try:
            while (taken := self._step()) and not self._outages:
                total += taken
        finally:
            self._give_back_ahead()
        return total + taken

    @property
    def broker_out(self) -> bool:
        """Whether the last batch found the broker out of reach; what it had taken waits in the store."""
        return self._outages > 0

    def sweep(self) -> int:
        """One pass of the sweep, now; how many rows were moved or deleted."""
        return self._sweep.once()

    def _turn(self, stop: threading.Event) -> None:
        try:
            if not self._active():
                self._give_back_ahead()
                stop.wait(self._settings.poll.total_seconds())
                return
            self._sweep.maybe()
            # to ask is a read and to take is a write: an idle relay writes nothing
            if not (self._more or self._ahead) and (left := self._left()):
                self._rest(left, stop)
                return
            taken = self._step()
            self._more = taken >= self._settings.relay_batch
            if taken:
                self._idle = _IDLE_FROM
            else:
                # another relay has them under its hands
                self._rest(self._idle, stop)
        except StoreError as error:
            logger.warning("the relay could not reach the store: %s", error)
            stop.wait(self._settings.poll.total_seconds())
            return
        if self._outages:
            self._more = False
            stop.wait(_OUTAGE.delay(self._outages, self._draw).total_seconds())

    def _left(self) -> timedelta:
        """How long to rest before something is due, at most until it is time to look again; zero when something is due now."""
        due = self._store.next_due()
        return self._idle if due is None else max(timedelta(0), min(due, self._idle))

    def _rest(self, pause: timedelta, stop: threading.Event) -> None:
        """Until the store hints at work or it is time to look again: the longer idle, the later."""
        self._idle = min(self._idle * 2, self._settings.poll)
        if not stop.is_set():
            self._more = self._store.wait(pause)

    def _active(self) -> bool:
        """Hold one of the slots, and say so again in time; false while others hold them all."""
        ttl = self._settings.relay_hold
        asked = time.monotonic()
        if self._slot is not None and asked < self._hold_again:
            return True
        for slot in [self._slot] if self._slot else [f"relay:{n}" for n in range(SLOTS)]:
            if self._store.hold(slot, self._name, ttl):
                self._slot = slot
                self._hold_again = asked + ttl.total_seconds() / 3
                return True
        self._slot = None
        return False

    def _release(self) -> None:
        if self._slot is not None:
            try:
                self._store.release(self._slot, self._name)
            except StoreError as error:
                logger.warning("the relay's slot could not be given back, it lapses by itself: %s", error)
            self._slot = None

    def _expired(self, token: str, row: Outgoing) -> bool:
        if row.state is State.PENDING and row.reason is Reason.HANDED_OVER:
            gone = TimeoutError("the job handed itself over to others, and nobody brought it back while it was kept")
            self._end(token, row, Reason.EXPIRED, gone)
            return True
        if not row.expired:
            return False
        self._end(token, row, Reason.EXPIRED, DeadlinePassed("The deadline was over before the job was published."))
        return True

    def _gone(self, token: str, row: Outgoing) -> bool:
        """Nothing can be published without the message: the job ends here, or what is left of its end is said from here."""
        if row.payload is not None:
            return False
        gone = JobFailed(
            f"The message of job {row.id} (generation {row.generation}) is gone from the store: it was deleted by hand, or evicted. "
            "Nothing can be published without it. Make the call again, under a new id.",
            reason=Reason.UNPUBLISHABLE.value,
        )
        self._unpublishable(token, row, gone)
        return True

    def _unpublishable(self, token: str, row: Outgoing, error: Exception) -> None:
        """Its message reaches no worker, now or ever."""
        logger.error("job %s (%s, %s): %s", row.id, row.task, row.state, error)
        if row.state not in ENDED:
            self._end(token, row, Reason.UNPUBLISHABLE, error)
        elif row.state in (State.DEAD, State.DROPPED):
            self._tell(row, error)
        else:
            # It is no failure, and no delivery can bring what it is: the store alone knows.
            self._store.note(row.id, self._describe(row, error))
            self._store.told([(row.id, row.fence)])

    def _undeliverable(self, row: Outgoing) -> bool:
        """A job is dead because no worker knows its task: no delivery could tell Celery, so it is told from here."""
        if row.state not in ENDED or row.reason is not Reason.UNKNOWN_TASK or self._sweep.knows(row.task):
            return False
        self._tell(row, JobFailed(f"No worker knows the task {row.task}.", reason=Reason.UNKNOWN_TASK.value))
        return True

    def _tell(self, row: Outgoing, error: Exception) -> None:
        """Tell Celery from here. If that fails the row is due again when the hold is over."""
        if self._publisher.tell(row, error):
            self._store.told([(row.id, row.fence)])

    def _refused(self, token: str, row: Outgoing, error: Exception) -> None:
        # of a dead one the relay can say what a delivery would; that a message was damaged no other try will change
        last = row.state in (State.DEAD, State.DROPPED) or isinstance(error, JobFailed)
        if last or row.refusals + 1 >= self._settings.publish_attempts:
            self._unpublishable(token, row, error)
        else:
            delay = _REFUSED.delay(row.refusals, self._draw, timedelta(seconds=1))
            logger.warning("job %s (%s) was refused, next try in %s: %s", row.id, row.task, delay, error)
            self._store.postpone(token, [(row.id, delay)], refused=True)
            self._tell_of(event.Refused(row.id, row.task, row.queue, type(error).__name__, delay))

    def _end(self, token: str, row: Outgoing, reason: Reason, error: Exception) -> None:
        failure = self._describe(row, error)
        contract = self._sweep.contract_named(row.task)
        settlement = Settlement(
            row.id, row.fence, "", final(contract, reason, error).state, reason, told=row.kind is Kind.CARRIED,
            tell_within=timedelta(0), keep=self._settings.keep_dead, failure=failure,
        )  # fmt: skip
        if self._store.end(token, settlement):
            self._tell_of(event.Ended(row.id, row.task, settlement.state, reason, failure))

    def _describe(self, row: Outgoing, error: Exception) -> StoredFailure:
        return describe(error, failure_class="permanent", task=row.task, worker=self._name, fence=row.fence, attempt=0)

    def _outage(self, token: str, rows: Sequence[Outgoing], published: Published) -> None:
        if published.outage is None:
            self._outages = 0
            return
        self._outages += 1
        settled = {*published.sent, *(id for id, _ in published.refused)}
        back = [(row.id, timedelta(0)) for row in rows if row.id not in settled]
        self._store.postpone(token, back, refused=False)
        logger.warning("the broker cannot be reached; %d jobs wait in the store: %s", len(back), published.outage)
