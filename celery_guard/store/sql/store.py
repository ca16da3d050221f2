"""The SQL store: the :class:`~celery_guard.store.protocol.Store` protocol on SQLite, PostgreSQL, MySQL and MariaDB.

Nothing is decided here. Each method picks the way its journey works on the database (:mod:`.database`) and hands over to it:
:mod:`.accept`, :mod:`.run`, :mod:`.relay`, :mod:`.sweep`, :mod:`.people`. What an open store is in itself is in :mod:`.opened`.
"""

from __future__ import annotations

import secrets
from collections.abc import Collection, Hashable, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, TypeVar, overload

from sqlalchemy.engine import Connection
from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import Session

from celery_guard.errors import KeyBusy, StoreUnavailableError
from celery_guard.job.instant import microseconds
from celery_guard.job.letter import Edit
from celery_guard.job.row import Attempt, Job, NewJob, Outgoing, StoredFailure, StoredPayload, StoredResult
from celery_guard.job.settlement import Settlement
from celery_guard.job.state import State
from celery_guard.job.tally import Count, Counted, Standing
from celery_guard.job.verdict import Claimed, Enqueued
from celery_guard.store.answers import NO_PROGRESS, Lease
from celery_guard.store.calls import BATCH, SETTLE_PATIENCE, as_seen, batches, owner_of_this_claim
from celery_guard.store.door import Door
from celery_guard.store.protocol import Backlog, Cancelled, Heartbeat, Quarantined, Renewal, Replayed

from . import accept, count, people, relay, run, sweep
from .doors import SqlDoor
from .operators import SqlOperators
from .statement import Cursor, Link
from .statements import people as people_statements
from .statements import run as run_statements
from .statements.run import Compare
from .transaction import BodySession, SqlTransaction

if TYPE_CHECKING:
    from .async_doors import AsyncSqlDoor

__all__ = ["SqlStore"]

T = TypeVar("T")


class SqlStore(SqlOperators):
    """The queue of record in an SQL database; opened like :class:`~celery_guard.store.sql.opened.OpenStore`."""

    # -- accept ---------------------------------------------------------------------------------------------------

    def enqueue(self, jobs: Sequence[NewJob]) -> list[Enqueued]:
        """Accept jobs in one transaction of the store's own."""

        def write(link: Link, again: bool, last: bool = False) -> list[Enqueued]:
            answers = accept.accept(link, jobs, notify=self._notify, again=again or last)
            if again and not last:
                accept.refuse_busy(answers)
            return answers

        at_once = self._traits.one_statement and len(jobs) == 1
        ways = self._database.quick if at_once else self._database.whole
        try:
            answers = ways(write)
        except StoreUnavailableError as error:
            if not isinstance(error.__cause__, KeyBusy):
                raise
            answers = ways(lambda link, again: write(link, again, last=True))
        self._bell.ring()
        return answers

    @overload
    def door(self, transaction: Session | Connection) -> SqlDoor: ...

    @overload
    def door(self, transaction: object) -> SqlDoor | AsyncSqlDoor: ...

    def door(self, transaction: object) -> SqlDoor | AsyncSqlDoor:
        """The door for a Session or a Connection of SQLAlchemy's, or for one of their asyncio kinds."""
        return self._doors.open(transaction)

    def cursor_door(self, cursor: Cursor, database: Hashable, *, same: bool = False) -> SqlDoor:
        """The door for a cursor that takes ``%s`` and a sequence; ``database`` names what it is connected to.

        ``same``: that is known to be the store's database, so nobody has to ask it which store it is.
        """
        return self._doors.open_cursor(cursor, database, same=same)

    def around(self) -> Door | None:
        """None: a transaction of the caller's is given, and not seen."""
        return None

    # -- run ------------------------------------------------------------------------------------------------------

    def claim(self, id: str, owner: str, lease: timedelta) -> Claimed:
        """Take the job for one attempt, or say why not."""
        own = owner_of_this_claim(owner)
        return self._database.quick(lambda link, again: run.claim(link, id, own, lease))

    def renew(
        self, leases: Iterable[Lease], lease: timedelta, progress: Mapping[Lease, str] = NO_PROGRESS
    ) -> list[Renewal]:
        """Start the given leases (id, fence, owner) anew; those that are somebody else's by now are left out."""

        def renew(batch: list[Lease]) -> list[Renewal]:
            return self._database.each(
                lambda connection, again: run.renew(connection, batch, lease, progress, self._traits)
            )

        return [renewal for batch in batches(leases) for renewal in renew(batch)]

    def settle(self, settlement: Settlement) -> bool:
        """Write an attempt's end, its result or failure, and what follows it, in one transaction."""
        try:
            return self._settle(settlement, Compare.OWNER, SETTLE_PATIENCE)
        except StoreUnavailableError as error:
            if isinstance(error.__cause__, KeyBusy):
                raise error.__cause__ from None
            raise

    def settle_unknown(self, settlement: Settlement) -> bool:
        """Move a job whose outcome is unknown to where a person, or a reconciler, says it belongs."""
        return self._settle(settlement, Compare.UNKNOWN)

    def begin(self) -> SqlTransaction:
        """Begin a transaction for a body's own writes. Raises ``NotImplementedError`` on a database in memory."""
        if "G5" in self.limits:
            raise NotImplementedError(f"{self} cannot keep G5: {self.limits['G5']}.")
        session = BodySession(self._database.bodies)
        return SqlTransaction(session, self._database.texts, self._notify, self._settled)

    def _settle(self, settlement: Settlement, compare: Compare, patient: int = 1, **compared: Any) -> bool:
        number = 0 if settlement.failure is None else secrets.randbits(62)

        def write(link: Link, again: bool) -> run.Move:
            return run.settle(link, settlement, compare, notify=self._notify, again=again, number=number, **compared)

        alone = run.stands_alone(self._traits.one_statement, settlement)
        moved = (self._database.quick if alone else self._database.whole)(write, patient)
        self._settled(settlement, moved)
        return moved is not run.Move.REFUSED

    def outcome(self, id: str) -> tuple[State, StoredResult | None, StoredFailure | None] | None:
        """The stored outcome of a job; None where there is no such row."""
        return self._database.quick(lambda link, again: run.outcome(link, id))

    def told(self, jobs: Iterable[tuple[str, int]]) -> None:
        """Note that Celery was told how these jobs (id, fence) ended."""

        def note(batch: list[tuple[str, int]]) -> None:
            self._database.each(lambda connection, again: connection.execute(run_statements.told(batch)))

        for batch in batches(jobs):
            note(batch)

    def note(self, id: str, failure: StoredFailure) -> None:
        """Keep a failure that moves nothing: an attempt that was superseded."""
        number = secrets.randbits(62)
        self._database.whole(lambda link, again: run.note(link, id, failure, number))

    # -- relay ----------------------------------------------------------------------------------------------------

    def take(self, token: str, limit: int, hold: timedelta) -> list[Outgoing]:
        """Take due rows to publish, oldest due first."""
        at_once = self._traits.one_statement
        taken = self._database.quick(lambda link, _: relay.take_at_once(link, token, limit, hold)) if at_once else None
        if taken is None:
            taken = self._passing_locked(
                lambda connection, skip_locked: relay.take(connection, token, limit, hold, skip_locked=skip_locked)
            )
        self._bell.took(len(taken))
        return taken

    def sent(self, token: str, ids: Sequence[str], suspect_after: timedelta) -> int:
        """Mark rows as published; how many still carried the token."""

        def mark(batch: list[str]) -> int:
            if self._traits.one_statement:
                return self._database.quick(lambda link, again: relay.sent_at_once(link, token, batch, suspect_after))
            return self._database.begin(lambda connection, again: relay.sent(connection, token, batch, suspect_after))

        return sum(map(mark, batches(ids)))

    def postpone(self, token: str, rows: Sequence[tuple[str, timedelta]], *, refused: bool) -> int:
        """Give taken rows back, each due after its delay."""

        def give_back(batch: list[tuple[str, timedelta]]) -> int:
            return self._database.begin(lambda connection, again: relay.postpone(connection, token, batch, refused))

        return sum(map(give_back, batches(rows)))

    def end(self, token: str, settlement: Settlement) -> bool:
        """End a taken, pending row, if it still carries the token."""
        return self._settle(settlement, Compare.RELAY, relay_=token)

    def next_due(self) -> timedelta | None:
        """How long until :meth:`take` would find something."""
        return self._database.quick(lambda link, again: relay.next_due(link))

    # -- sweep ----------------------------------------------------------------------------------------------------

    def lapsed(self, limit: int) -> list[Attempt]:
        """Running rows whose lease has ended."""
        return self._database.each(lambda connection, again: sweep.overdue(connection, State.RUNNING, limit))

    def suspects(self, limit: int, margin: timedelta = timedelta(0)) -> list[Attempt]:
        """Sent rows that nobody claimed for longer than they should have waited."""
        return self._database.each(lambda connection, again: sweep.overdue(connection, State.SENT, limit, margin))

    def recover(self, attempt: Attempt, settlement: Settlement) -> bool:
        """Move a lapsed or suspect row, if nothing about it has changed since."""
        seen = as_seen(attempt, settlement)
        return self._settle(seen, Compare.LAPSE, was_=attempt.state.value, was_reason_=attempt.reason or "")

    def defer(self, attempts: Sequence[Attempt], delay: timedelta) -> int:
        """Look at suspects again after the delay; how many of them were still suspects."""

        def put_off(ids: list[str]) -> int:
            return self._database.each(lambda connection, again: sweep.defer(connection, ids, delay))

        return sum(map(put_off, batches(attempt.id for attempt in attempts)))

    def retain(self, limit: int) -> int:
        """Delete up to ``limit`` rows whose time is over, with all that belongs to them."""
        return self._passing_locked(
            lambda connection, skip_locked: sweep.retain(connection, min(limit, BATCH), skip_locked=skip_locked)
        )

    def retain_quarantined(self, limit: int, keep: timedelta) -> int:
        """Delete up to ``limit`` messages that have been in quarantine for longer than ``keep``."""
        return self._database.begin(
            lambda connection, again: sweep.retain_quarantined(connection, min(limit, BATCH), keep)
        )

    # -- count ----------------------------------------------------------------------------------------------------

    def count(self, what: Count, ids: Sequence[str]) -> None:
        """Count something that no row says, once for each of these jobs."""

        def write(link: Link, again: bool) -> None:
            for id in ids:
                count.beside(link, what, id)

        self._database.whole(write)

    def fold(self, limit: int) -> int:
        """Add up what up to ``limit`` ended rows say."""
        return self._passing_locked(
            lambda connection, skip_locked: count.fold(connection, min(limit, BATCH), skip_locked=skip_locked)
        )

    def counted(self) -> list[Counted]:
        """Every total since the store was made, at one moment."""
        return self._database.each(lambda connection, again: count.counted(connection))

    def standing(self) -> list[Standing]:
        """What has not ended, and what is dead, by state, queue and task."""
        return self._database.each(lambda connection, again: count.standing(connection))

    # -- people ---------------------------------------------------------------------------------------------------

    def job(self, id: str) -> Job | None:
        """One job with its failures."""
        return self._database.each(lambda connection, again: people.job_of(connection, id))

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
        """Jobs, newest first."""
        wanted = {"task": task, "queue": queue, "tenant": tenant, "cause": cause, "key_hash": key}
        wanted["failure_class"] = failure_class
        ages = {"created": (older, younger), "finished": (ended_before, ended_since)}
        return self._database.each(
            lambda connection, again: people.jobs(connection, states, wanted, ages, limit, after)
        )

    def backlog(self, limit: int) -> list[Backlog]:
        """What waits and runs, by queue, of the jobs that are due first."""
        return self._database.each(lambda connection, again: people.backlog(connection, limit))

    def clock(self) -> datetime:
        """Now, by the database's clock."""
        return self._database.each(lambda connection, again: people.clock(connection))

    def payload(self, id: str, generation: int | None = None) -> StoredPayload | None:
        """The stored message of a job; the latest generation by default."""
        return self._database.each(lambda connection, again: people.payload_of(connection, id, generation))

    def counts(self, tenant: str | None = None, states: Collection[State] = ()) -> Mapping[State, int]:
        """How many jobs are in each state that has any."""
        return self._database.each(lambda connection, again: people.counts(connection, tenant, states))

    def cancel(self, id: str) -> Cancelled:
        """Cancel a waiting job at once, ask a running one to stop, and say so when it is too late."""
        answer, awaited = self._database.begin(lambda connection, again: people.cancel(connection, id, again))
        if awaited:
            self._release(id)
        return answer

    def replay(self, ids: Sequence[str]) -> list[Replayed]:
        """Send dead jobs again, each in its own transaction."""
        answers = [self._replay(id) for id in ids]
        if any(answer.answer == "replayed" for answer in answers):
            self._ring()
        return answers

    def replay_edited(self, edit: Edit) -> Replayed:
        """Send a dead job again with another message, in one transaction."""
        answer = self._replay(edit.id, edit)
        if answer.answer == "replayed":
            self._ring()
        return answer

    def _replay(self, id: str, edit: Edit | None = None) -> Replayed:
        lock_keys, seen = self._traits.one_statement, list[int]()
        try:
            return self._database.begin(
                lambda connection, again: people.replay(connection, id, seen, lock_keys=lock_keys, edit=edit)
            )
        except IntegrityError:
            return Replayed(id, "skipped", "its key was taken at this moment")

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
        """Keep a message as the raw bytes it was; its number."""
        name = token or secrets.token_hex(16)
        words = {
            "headers": headers, "content_type": content_type, "content_encoding": content_encoding, "reason": reason,
            "delivery": delivery,
        }  # fmt: skip
        return self._database.begin(lambda connection, again: people.quarantine(connection, name, queue, body, words))

    def quarantined(self, limit: int = 100, *, handled: bool = False, before: int | None = None) -> list[Quarantined]:
        """Messages in quarantine, newest first, without their bodies."""
        return self._database.each(lambda connection, again: people.quarantined(connection, limit, handled, before))

    def move_message(self, number: int, was: str, state: str, why: str) -> bool:
        """Note what a person does about a message in quarantine."""
        return self._database.begin(
            lambda connection, again: people.move_message(connection, number, was, state, why, again)
        )

    def message(self, number: int) -> Quarantined | None:
        """One message in quarantine, with its body; None where there is no such number."""
        return self._database.each(lambda connection, again: people.message(connection, number))

    # -- who is alive -----------------------------------------------------------------------------------------------

    def hold(self, name: str, token: str, ttl: timedelta, detail: str = "") -> bool:
        """Take or keep a named slot for ``ttl``; False while another token holds it alive."""
        slot = (name, token, microseconds(ttl), detail)

        def take_slot(connection: Connection, again: bool) -> bool:
            if connection.execute(people_statements.keep_slot(*slot)).rowcount:
                return True
            if connection.execute(people_statements.slot_taken(name)).first() is not None:
                return False
            connection.execute(people_statements.hold(*slot))
            return True

        try:
            return self._database.begin(take_slot)
        except IntegrityError:
            # Another took it between our look and our write.
            return False

    def release(self, name: str, token: str) -> None:
        """Give a slot back, if it is still this token's."""
        self._database.each(lambda connection, again: connection.execute(people_statements.release_slot(name, token)))

    def heartbeats(self) -> list[Heartbeat]:
        """Every slot and process that has said it is alive and was not forgotten since."""
        return self._database.each(lambda connection, again: people.heartbeats(connection))
