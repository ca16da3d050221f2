"""The Store protocol: what is remembered, and the compare-and-set that everything rests on.

Methods are named by the journey that needs them. Each is one short transaction of the store's own, safe to repeat,
repeated with jitter on transient errors, and raises :class:`~celery_guard.errors.StoreUnavailableError` when that does
not help; the exception is :meth:`Store.enqueue` through a door, which writes into the caller's transaction and repeats
nothing there. No method holds a lock after it returns. The conformance suite in
:mod:`celery_guard.testing.conformance` states the rest.

A repetition answers for the whole call: what an earlier try has written is written once, and is not refused. Two things are less exact after
an answer was lost. A number of rows that were moved or deleted (``sent``, ``postpone``, ``defer``, ``retain``, ``fold``, ``replay_release``) may
be too small; what an earlier try has taken (``take``) comes back when its hold is over. And what leaves no row (duplicates, conflicts,
:meth:`Store.count`) may be counted once more.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Protocol

from celery_guard.job.row import Attempt, Job, NewJob, Outgoing, StoredFailure, StoredPayload, StoredResult
from celery_guard.job.settlement import Settlement
from celery_guard.job.state import State
from celery_guard.job.tally import Count, Counted, Standing
from celery_guard.job.verdict import Claimed, Enqueued

from .answers import HANDLED, NO_PROGRESS, Backlog, Cancelled, Heartbeat, Lease, Quarantined, Renewal, Replayed
from .door import Door, Transaction
from .operators import Operators

__all__ = [
    "HANDLED",
    "Backlog",
    "Cancelled",
    "Door",
    "Heartbeat",
    "Quarantined",
    "Renewal",
    "Replayed",
    "Store",
    "Transaction",
]


class Store(Operators, Protocol):
    """The queue of record."""

    # -- accept ---------------------------------------------------------------------------------------------------

    def enqueue(self, jobs: Sequence[NewJob]) -> list[Enqueued]:
        """Accept jobs in one transaction of the store's own, all of them or none; answers in the order of ``jobs``.

        A store that cannot write more than a batch (:mod:`celery_guard.store.calls`) at once says so in :attr:`limits`, under G2.

        A job whose key is held is a ``Duplicate`` (same fingerprint) or a ``Conflict``; the others are still written.
        A duplicate with ``in_canvas`` is written as a follower. A job whose id exists is a duplicate of itself.
        """
        ...

    def door(self, transaction: object) -> Door:
        """The door for a transaction of the caller's.

        Raises ``TypeError`` for an object it has no door for, and ``WrongDatabaseError`` for another database.
        """
        ...

    def around(self) -> Door | None:
        """Where a job goes that was given no transaction: into the one that the caller is in, where the store can see that by itself.

        None where it cannot, or there is none: then :meth:`enqueue` writes the job.
        """
        ...

    # -- run ------------------------------------------------------------------------------------------------------

    def claim(self, id: str, owner: str, lease: timedelta) -> Claimed:
        """Take the job for one attempt, or say why not.

        ``owner`` names the process; the owner that is granted is ``owner`` with a mark of this very call, so that a
        claim whose answer was lost is recognized when it is repeated. Settle and renew with the granted one.

        Granted when the row is ``sent``, or ``pending`` and either due or taken by a relay (the worker was faster
        than the relay's mark). Raises the fence, counts the attempt, starts the lease, in the store's clock. Never
        takes from a lapsed lease: that is the sweep's.

        On an ended row that is untold and was published to be told (its ``relay`` is set), exactly one claim is
        answered ``Settled(tell=True)`` with the stored outcome; every other ``tell=False``. It has ``lease`` to tell, or longer; where its answer
        was lost nobody tells, and the row is due again after that time.
        """
        ...

    def renew(
        self, leases: Iterable[Lease], lease: timedelta, progress: Mapping[Lease, str] = NO_PROGRESS
    ) -> list[Renewal]:
        """Start the given leases (id, fence, owner) anew; those that are somebody else's by now are left out.

        ``progress`` is what the attempts of some of them have said, written in the same statement. A claim, and a replay, clear it.
        """
        ...

    def settle(self, settlement: Settlement) -> bool:
        """Write an attempt's end, its result or failure, and what follows it, in one transaction.

        False: (fence, owner) does not own the row any more, and nothing was written. A lapsed lease that nobody
        claimed since still owns it (state ``pending`` or ``sent`` with reason ``lost``). Of a move to ``pending`` without a failure, whose answer
        was lost and after which the next attempt has ended already, False may be said though it was written.

        Raises ``KeyBusy``: an open transaction takes the key of what follows, for longer than is waited for; nothing was written.
        """
        ...

    def begin(self) -> Transaction:
        """Begin a transaction for a body's own writes. Raises ``NotImplementedError`` where :attr:`limits` names G5."""
        ...

    def settle_unknown(self, settlement: Settlement) -> bool:
        """Move a job whose outcome is unknown to where a person, or a reconciler, says it belongs.

        False unless it is ``unknown`` under the settlement's fence: then nothing was written.
        """
        ...

    def outcome(self, id: str) -> tuple[State, StoredResult | None, StoredFailure | None] | None:
        """The stored outcome of a job; None where there is no such row."""
        ...

    def told(self, jobs: Iterable[tuple[str, int]]) -> None:
        """Note that Celery was told how these jobs (id, fence) ended."""
        ...

    def note(self, id: str, failure: StoredFailure) -> None:
        """Keep a failure that moves nothing: an attempt that was superseded."""
        ...

    # -- relay ----------------------------------------------------------------------------------------------------

    def take(self, token: str, limit: int, hold: timedelta) -> list[Outgoing]:
        """Take due rows to publish, oldest due first: pending ones, and ended ones that Celery was not told about.

        A taken row carries ``token`` and is due again after ``hold``, so that it is found if this relay dies. Two
        relays never take the same row. Followers (``held_key``) whose holder has not ended are not taken.
        """
        ...

    def sent(self, token: str, ids: Sequence[str], suspect_after: timedelta) -> int:
        """Mark rows as published; how many still carried the token.

        A pending row becomes ``sent`` and is suspect after ``suspect_after`` doubled for each earlier publication
        since its last claim. A row claimed meanwhile stays as it is. A carried row is ``succeeded``, told. An ended
        row is to be told again after ``suspect_after``.
        """
        ...

    def postpone(self, token: str, rows: Sequence[tuple[str, timedelta]], *, refused: bool) -> int:
        """Give taken rows back, each due after its delay. ``refused`` counts against the row; an outage does not."""
        ...

    def end(self, token: str, settlement: Settlement) -> bool:
        """End a taken, pending row (expired, unpublishable, unknown task), if it still carries the token."""
        ...

    def next_due(self) -> timedelta | None:
        """How long until :meth:`take` would find something; not positive when it would now; None when nothing waits."""
        ...

    def wait(self, timeout: timedelta) -> bool:
        """Wait until the store hints at new work or the time is over. Best effort; in no guarantee."""
        ...

    # -- sweep ----------------------------------------------------------------------------------------------------

    def lapsed(self, limit: int) -> list[Attempt]:
        """Running rows whose lease has ended."""
        ...

    def suspects(self, limit: int, margin: timedelta = timedelta(0)) -> list[Attempt]:
        """Sent rows that nobody claimed for longer than they should have waited.

        One is ``overtaken`` if a job that was published to the same queue more than ``margin`` after it is running.
        """
        ...

    def recover(self, attempt: Attempt, settlement: Settlement) -> bool:
        """Move a lapsed or suspect row, if nothing about it has changed since: same state, reason, fence, owner, still due.

        A row that goes back to ``pending`` as ``lost`` keeps its owner, who may still settle until the next claim. Of several sweeps at once
        one is told that it was it: a recovery whose answer was lost is recognized by its failure's number. One without a failure (a message
        that nobody claimed) is taken for written where the row is as it would have left it.
        """
        ...

    def defer(self, attempts: Sequence[Attempt], delay: timedelta) -> int:
        """Look at suspects again after the delay; how many of them were still suspects. One statement for all."""
        ...

    def retain(self, limit: int) -> int:
        """Delete up to ``limit`` rows whose time is over, with all that belongs to them; how many went."""
        ...

    def retain_quarantined(self, limit: int, keep: timedelta) -> int:
        """Delete up to ``limit`` messages that have been in quarantine for longer than ``keep``, oldest first; how many went."""
        ...

    # -- count ----------------------------------------------------------------------------------------------------

    def count(self, what: Count, ids: Sequence[str]) -> None:
        """Count something that no row says, once for each of these jobs."""
        ...

    def fold(self, limit: int) -> int:
        """Add up what up to ``limit`` ended rows say, so that a reading need not look at them; how many were left to add.

        Nothing that is read changes by it. A row whose time is over, or that is replayed, is added up in that transaction.
        """
        ...

    def counted(self) -> list[Counted]:
        """Every total since the store was made, at one moment. Totals only rise, also when rows are deleted."""
        ...

    def standing(self) -> list[Standing]:
        """What has not ended, and what is dead, by state, queue and task. Reads in proportion to those, not to all jobs."""
        ...

    # -- people ---------------------------------------------------------------------------------------------------

    def job(self, id: str) -> Job | None:
        """One job with its failures."""
        ...

    def jobs(
        self,
        *,
        states: Sequence[State] = (),
        task: str | None = None,
        queue: str | None = None,
        tenant: str | None = None,
        cause: str | None = None,
        key: str | None = None,
        failure_class: str | None = None,
        older: timedelta | None = None,
        younger: timedelta | None = None,
        ended_before: timedelta | None = None,
        ended_since: timedelta | None = None,
        limit: int = 100,
        after: str | None = None,
    ) -> list[Job]:
        """Jobs, newest first; ``after`` is the id of the last one of the page before.

        ``key`` is the hash of a key, as the rows have it; ``older`` and ``younger`` compare the time since a job was accepted, ``ended_before`` and
        ``ended_since`` the time since it ended: at least, and at most, so long ago.
        """
        ...

    def backlog(self, limit: int) -> list[Backlog]:
        """What waits and runs, by queue: of each state the ``limit`` jobs that are due first, so that the answer is bounded."""
        ...

    def clock(self) -> datetime:
        """Now, by the store's clock."""
        ...

    def payload(self, id: str, generation: int | None = None) -> StoredPayload | None:
        """The stored message of a job; the latest generation by default."""
        ...

    def counts(self, tenant: str | None = None, states: Collection[State] = ()) -> Mapping[State, int]:
        """How many jobs are in each state that has any; of one tenant, and of these states, where that is said.

        Of states that are all among :data:`~celery_guard.job.state.STANDING` that is quick; of others each job that is kept is counted.
        """
        ...

    def cancel(self, id: str) -> Cancelled:
        """Cancel a waiting job at once, ask a running one to stop, and say so when it is too late."""
        ...

    def replay(self, ids: Sequence[str]) -> list[Replayed]:
        """Send dead jobs again, each in its own transaction.

        Counts start anew, history and payload stay, the key is taken again or the job is skipped. The fence rises: old news is void.
        """
        ...

    # -- messages nobody could open ---------------------------------------------------------------------------------

    def quarantine(
        self,
        *,
        queue: str,
        body: bytes,
        headers: str,
        content_type: str,
        content_encoding: str,
        reason: str,
        delivery: str | None = None,
        token: str | None = None,
    ) -> int:
        """Keep a message as the raw bytes it was; its number.

        ``token`` names the message, where the same one may be brought twice: it is kept once, and has one number.
        """
        ...

    def quarantined(self, limit: int = 100, *, handled: bool = False, before: int | None = None) -> list[Quarantined]:
        """Messages in quarantine, newest first, without their bodies; ``before`` is the last number of the page before.

        ``handled``: also those that a person has released or discarded.
        """
        ...

    def move_message(self, number: int, was: str, state: str, why: str) -> bool:
        """Note what a person does about a message in quarantine; False unless its state is ``was``."""
        ...

    def message(self, number: int) -> Quarantined | None:
        """One message in quarantine, with its body; None where there is no such number."""
        ...

    # -- who is alive -----------------------------------------------------------------------------------------------

    def hold(self, name: str, token: str, ttl: timedelta, detail: str = "") -> bool:
        """Take or keep a named slot for ``ttl``; False while another token holds it alive."""
        ...

    def release(self, name: str, token: str) -> None:
        """Give a slot back, if it is still this token's."""
        ...

    def heartbeats(self) -> list[Heartbeat]:
        """Every slot and process that has said it is alive and was not forgotten since."""
        ...

    # -- the store itself -------------------------------------------------------------------------------------------

    def upgrade(self) -> None:
        """Bring the tables to this version."""
        ...

    def upgrade_sql(self) -> str:
        """The statements that :meth:`upgrade` would run, as text, for people who run their own."""
        ...

    def check(self) -> None:
        """Raise ``StoreSchemaError`` unless the tables are those of this version, ``StoreUnavailableError`` unless reachable."""
        ...

    def server(self) -> Mapping[str, str | None]:
        """How the store's server is set, where that decides what it keeps: names and values in its own words.

        None for what it does not say to this user; empty where nothing can be set that matters.
        """
        ...

    def forget_connections(self) -> None:
        """Called in a new process after fork: drop every inherited connection without closing it for the parent."""
        ...

    def close(self) -> None:
        """Close what this process holds open."""
        ...

    @property
    def limits(self) -> Mapping[str, Any]:
        """What this store cannot keep, by guarantee (``{"G2": "…"}``), for the checks and the docs."""
        ...
