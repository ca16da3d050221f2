"""The way through: one delivery of one job, from its claim to its settled row.

    claim -> body -> decide -> settle -> tell

A delivery is only a wake-up call: it may be late, doubled or wrong. What counts is what the claim answers::

    delivery A        delivery B (a duplicate)        the row
    claim ----------------------------------------->  sent -> running, fence 7, owner A
                      claim ----------------------->  Leased: B does nothing, the store brings the job back if A dies
    body
    settle (7, A) --------------------------------->  running -> succeeded, result, what follows: one transaction
                      claim ----------------------->  Settled: B does nothing, or tells what A had no time to tell
    tell Celery
    told ------------------------------------------>  told

Killed before settle: the lease lapses and the sweep brings the job back. Killed after it: the row is ended but untold, and
the sweep publishes it once more; that delivery is answered ``Settled(tell=True)`` and hands back what is stored, without the body.
A body that writes through ``job.transaction()`` is settled in that transaction. Two round trips: claim and settle. ``told`` is written in batches, later, by the lease keeper.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from typing import Protocol

from celery_guard.errors import (
    DeadlinePassed,
    EncryptionKeyError,
    JobCancelled,
    JobFailed,
    KeyBusy,
    PayloadError,
    StoreError,
)
from celery_guard.job import event
from celery_guard.job.conceal import conceal, conceal_failure
from celery_guard.job.conclude import conclude, held_since, superseded
from celery_guard.job.delivery import Delivery, Ending, HandBack, Nothing, Stale, Unheard
from celery_guard.job.encryption import NO_ENCRYPTION, Encryption, concealed
from celery_guard.job.event import Tell, tell_nobody
from celery_guard.job.outcome import Contended, Failed, Held, Outcome, Stopped
from celery_guard.job.row import StoredResult
from celery_guard.job.settlement import Settlement
from celery_guard.job.state import Reason, State
from celery_guard.job.verdict import Granted, Leased, Missing, NotDue, Settled
from celery_guard.settings import Settings

from .context import RunningJob, running_job
from .ownership import Attempts, Keeper, Ownership

__all__ = ["Body", "Runner"]


class Body(Protocol):
    """A delivery's body, as the integration runs it. Its methods say how it came back, and raise nothing."""

    def run(self, job: RunningJob) -> Outcome:
        """Run it."""
        ...

    def given(self, job: RunningJob, result: StoredResult | None) -> Outcome:
        """Do not run it: the job is given this result, and goes on from there as if it had returned it."""
        ...


class Runner:
    """Runs deliveries in one process."""

    def __init__(
        self,
        store: Attempts,
        keeper: Keeper,
        settings: Settings,
        owner: Callable[[], str],
        tell: Tell = tell_nobody,
        encryption: Encryption = NO_ENCRYPTION,
    ) -> None:
        self._store = store
        self._keeper = keeper
        self._settings = settings
        self._owner = owner
        self._tell = tell
        self._encryption = encryption
        self._draw = random.Random()

    def run(self, delivery: Delivery, body: Body) -> Ending:
        """Take one delivery through its whole journey.

        Raises:
            StoreUnavailableError: the store could not be asked, or not be told; the job is unfinished and will come back.
        """
        lease = delivery.contract.timing.lease or self._settings.lease
        asked = time.monotonic()
        verdict = self._store.claim(delivery.id, self._owner(), lease)
        match verdict:
            case Granted():
                return self._granted(delivery, verdict, body, lease, asked)
            case Settled(tell=True):
                return self._hand_back(delivery, verdict)
            case Settled(state=state):
                return self._nothing(delivery, f"already {state.value}")
            case Leased(owner=owner):
                return self._nothing(delivery, f"running under the lease of {owner}")
            case NotDue(reason=reason):
                return self._nothing(delivery, f"not due yet ({reason.value if reason else 'new'})")
            case Missing():
                return Unheard()

    def _hand_back(self, delivery: Delivery, settled: Settled) -> Ending:
        """What is stored of how the job ended. Where its key is not known here it stays untold, and is published again for one who has it."""
        try:
            result = self._encryption.decrypt_result(settled.id, settled.result)
            failure = self._encryption.decrypt_failure(settled.id, settled.failure)
        except EncryptionKeyError as error:
            return self._nothing(delivery, f"how it ended cannot be told from here. {error}")
        except PayloadError:
            # damaged: Celery hears that it cannot be read
            result = settled.result
            failure = None if settled.failure is None else concealed(settled.failure)
        return HandBack(replace(settled, result=result, failure=failure))

    def _nothing(self, delivery: Delivery, why: str) -> Nothing:
        self._tell(event.Ignored(delivery.id, delivery.task, why, delivery.worker))
        return Nothing(why)

    def _granted(self, delivery: Delivery, granted: Granted, body: Body, lease: timedelta, asked: float) -> Ending:
        contract = delivery.contract
        own = Ownership(
            granted, self._store, lease, contract.timing.attempt, asked, delivery.task, private=bool(contract.sensitive)
        )
        claim = event.claimed(granted, delivery.task, delivery.worker)
        self._tell(claim)
        try:
            ending, written = self._attempt(delivery, own, body, lease)
        except BaseException as error:
            self._tell(event.Abandoned(claim.id, claim.task, claim, type(error).__name__, own.elapsed))
            raise
        if written is None:
            self._tell(event.Fenced(claim.id, claim.task, claim, own.elapsed))
        else:
            self._tell(event.settled(claim, written, own.elapsed))
        return ending

    def _attempt(
        self, delivery: Delivery, own: Ownership, body: Body, lease: timedelta
    ) -> tuple[Ending, Settlement | None]:
        """How the attempt ended, and what was written of it: nothing, where it is not the owner any more."""
        timing, granted = delivery.contract.timing, own.granted
        self._keeper.hold(own, lease, timing)
        try:
            outcome = self._outcome(RunningJob(own, self._keeper), granted, body)
            if isinstance(outcome, Held):
                outcome = replace(outcome, waited=self._held_for(granted))
            if _gave_up(outcome):
                return self._stale(delivery, granted, outcome), None
            settlement, ending = self._conclude(delivery, granted, outcome, own)
            try:
                written = self._settle(own, self._encrypted(delivery, settlement))
            except StoreError:
                raise
            except Exception as error:  # noqa: BLE001 - a key is being taken; or the database has something against the body's own writes
                outcome = Contended(error) if isinstance(error, KeyBusy) else Failed(error)
                settlement, ending = self._conclude(delivery, granted, outcome, own)
                written = self._store.settle(self._encrypted(delivery, settlement))
        finally:
            if own.enlisted is not None:
                own.enlisted.rollback()
            self._keeper.let_go(own)
        return (ending, settlement) if written else (self._stale(delivery, granted, outcome), None)

    def _stale(self, delivery: Delivery, granted: Granted, outcome: Outcome) -> Stale:
        """Not the owner any more. If nobody has taken the job yet, the sweep does, which counts how often that happens."""
        failure = conceal_failure(delivery.hidden, superseded(delivery, granted, outcome))
        if delivery.contract.sensitive:
            failure = self._encryption.encrypt_failure(granted.id, failure)
        self._store.note(granted.id, failure)
        return Stale(granted.fence)

    def _conclude(
        self, delivery: Delivery, granted: Granted, outcome: Outcome, own: Ownership
    ) -> tuple[Settlement, Ending]:
        written, ending = conclude(delivery, granted, outcome, own.elapsed, self._settings, self._draw)
        if own.progress is not None:
            written = replace(written, progress=own.progress)
        return conceal(delivery.hidden, written, ending)

    def _encrypted(self, delivery: Delivery, settlement: Settlement) -> Settlement:
        # that a job is held is the guard's own words, and says what to do
        held = settlement.reason in (Reason.HELD_VERSION, Reason.HELD_ENCRYPTION)
        words = bool(delivery.contract.sensitive) and not held
        return self._encryption.encrypt_settlement(settlement, words=words)

    def _settle(self, own: Ownership, settlement: Settlement) -> bool:
        """In one transaction with what the body wrote, where it wrote through the guard and has succeeded."""
        if own.enlisted is None:
            return self._store.settle(settlement)
        if settlement.state is State.SUCCEEDED or settlement.reason in (Reason.REPLACED, Reason.HANDED_OVER):
            return own.enlisted.commit(settlement)
        own.enlisted.rollback()
        return self._store.settle(settlement)

    def _outcome(self, job: RunningJob, granted: Granted, body: Body) -> Outcome:
        if granted.cancel:
            return Stopped(JobCancelled(f"Job {job.id} was cancelled before it started."))
        if granted.remaining is not None and granted.remaining <= timedelta(0):
            return Stopped(DeadlinePassed(f"Job {job.id}: its deadline {job.deadline} was over before it started."))
        token = running_job.set(job)
        try:
            return self._follow_holder(job, granted.holder, body) if granted.holder else body.run(job)
        finally:
            running_job.reset(token)

    def _held_for(self, granted: Granted) -> timedelta | None:
        """How long the job has been held for its version; None where nothing says that it was, or it has run since."""
        job = self._store.job(granted.id)
        since = None if job is None else held_since(job.failures)
        return None if job is None or since is None else job.created + granted.age - since

    def _follow_holder(self, job: RunningJob, holder: str, body: Body) -> Outcome:
        """A duplicate inside a canvas is given the outcome of the job that holds its key."""
        found = self._store.outcome(holder)
        try:
            result = None if found is None else self._encryption.decrypt_result(holder, found[1])
            failure = None if found is None else self._encryption.decrypt_failure(holder, found[2])
        except EncryptionKeyError as error:
            return Held(error)
        except PayloadError:
            # damaged: the body says so
            result = None if found is None else found[1]
            failure = None if found is None or found[2] is None else concealed(found[2])
        if found is not None and found[0] is State.SUCCEEDED:
            return body.given(job, result)
        how = "is gone" if found is None else f"ended as {found[0].value}"
        why = f": {failure.type_name}: {failure.message}" if failure else ""
        return Failed(
            JobFailed(f"Job {holder}, which holds this job's key, {how}{why}", reason=Reason.HOLDER_ENDED.value)
        )


def _gave_up(outcome: Outcome) -> bool:
    """The body stopped because it is not the owner any more."""
    return isinstance(outcome, Stopped) and not isinstance(outcome.error, (JobCancelled, DeadlinePassed))
