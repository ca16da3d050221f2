"""The Redis store: the :class:`~celery_guard.store.protocol.Store` protocol by scripts that the server runs, one for each operation.

A script is done as a whole, and nothing else happens meanwhile. So there are no locks here, nobody is ever ``Busy``, and a
follower is released in the very move that ends its holder. Every key begins with the store's tag, so all of them are in one
slot of a cluster. None ever expires: what is over is forgotten by :meth:`RedisStore.retain`, in small batches.

======================  ======  ===================================================================================
``store``               hash    version, id, created: which store this is
``job:ID``              hash    the row; a field that is not there is NULL, or 0
``payload:ID``          hash    the messages: body, headers, delivery of each generation
``result:ID``           hash    what a duplicate is given back
``failures:ID``         hash    number of a failure -> the failure, as JSON
``followers:ID``        set     jobs that wait for this one's outcome
``keys``                hash    hash of a held key -> who holds it
``due:pending``         zset    by ``due``: what a relay publishes
``due:sent``            zset    by ``due``: whose message the sweep suspects to be lost
``due:running``         zset    by ``due``: whose lease ends
``due:ended``           zset    by ``due``: of what Celery is to be told
``keep``                zset    by ``keep_until``: what may be forgotten
``created``             zset    by ``created``: all jobs
``state:STATE``         zset    by ``created``: the jobs in a state, to be listed and counted
``cause:CAUSE``         zset    by ``created``: what failed alike
``running:QUEUE``       zset    by ``sent``: what runs, to see whether a message was overtaken
``heartbeats``          zset    by ``until``: slots and processes; each has a hash ``heartbeat:NAME``
``quarantine``          zset    by number: messages nobody could open; each has a hash ``quarantine:NUMBER``
``quarantine_kept``     zset    those of them that nobody has released or discarded
``quarantine_handled``  zset    by time: those that somebody has
``quarantine_tokens``   hash    which call has written which of them, the last number, and the bytes of all
``started``             hash    when a job of a queue was last started
``count``               hash    (what, task, state, reason, class) as JSON -> its total
``wake``                list    one element while there may be work that no relay has been called for
======================  ======  ===================================================================================

What operators have besides is in :mod:`.operators`. A row and its indices are written by one function only (``scripts/row.lua``). Nothing reads in proportion to the number of jobs:
what is due, lapsed or over is the low end of an index, and a list is read a page at a time.
"""

from __future__ import annotations

import logging
import secrets
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, NoReturn, TypeVar

from celery_guard.job.instant import microseconds
from celery_guard.job.letter import Edit
from celery_guard.job.row import Attempt, Job, NewJob, Outgoing, StoredFailure, StoredPayload, StoredResult
from celery_guard.job.settlement import Settlement
from celery_guard.job.state import State
from celery_guard.job.text import clean
from celery_guard.job.verdict import Claimed, Enqueued
from celery_guard.store import bounds
from celery_guard.store.answers import NO_PROGRESS, Lease
from celery_guard.store.calls import (
    BATCH,
    FOLLOWER_PAUSE,
    SETTLE_PATIENCE,
    as_seen,
    batches,
    batches_of_jobs,
    owner_of_this_claim,
)
from celery_guard.store.door import Door
from celery_guard.store.protocol import HANDLED, Backlog, Cancelled, Heartbeat, Quarantined, Renewal, Replayed

from . import given, rows
from .counting import RedisCounting
from .operators import RedisOperators

__all__ = ["QUARANTINE_BYTES", "QUARANTINE_MOST", "RedisStore"]

logger = logging.getLogger("celery_guard.store")

T = TypeVar("T")

#: The quarantine is not to fill the memory that jobs are accepted into: beyond so many messages, or bytes of theirs, the oldest go.
QUARANTINE_MOST = 10_000
QUARANTINE_BYTES = 64 * 1024 * 1024

#: How many rows one script looks at for a list that people asked for.
_BUDGET = 1000


class RedisStore(RedisCounting, RedisOperators):
    """The queue of record in Redis; opened like :class:`~celery_guard.store.redis.opened.OpenStore`."""

    # -- accept ---------------------------------------------------------------------------------------------------

    def enqueue(self, jobs: Sequence[NewJob]) -> list[Enqueued]:
        """Accept jobs, a batch by one script: all of a batch or none. Batches are written in order, each for good; see :attr:`limits`."""
        mark, done = _mark(), 0
        answered: list[Enqueued] = []
        for batch in batches_of_jobs(jobs):
            news = [given.new_job(new, f"{mark}:{place}") for place, new in enumerate(batch, done)]
            letters = [part for new in batch for part in given.letter(new.payload)]
            done += len(batch)
            # Those that come in later batches are younger.
            answers = self._server.run("enqueue", {"jobs": news, "behind": len(jobs) - done}, *letters)
            answered += [rows.enqueued(new.id, answer) for new, answer in zip(batch, answers, strict=True)]
        return answered

    def door(self, transaction: object) -> NoReturn:
        """Raises ``TypeError``: a Redis store cannot join a transaction of the caller's."""
        raise TypeError(
            f"A Redis store cannot join a transaction ({type(transaction).__name__}): what is enqueued goes out at once, whatever "
            "becomes of the transaction (no G2). Enqueue after the commit, or name an SQL store, on the database of the transaction."
        )

    def around(self) -> Door | None:
        """None: a transaction of the caller's is given, and not seen."""
        return None

    # -- run ------------------------------------------------------------------------------------------------------

    def claim(self, id: str, owner: str, lease: timedelta) -> Claimed:
        """Take the job for one attempt, or say why not."""
        own = owner_of_this_claim(owner)
        return rows.claimed(id, self._server.run("claim", {"id": id, "owner": own, "lease": microseconds(lease)}))

    def renew(
        self, leases: Iterable[Lease], lease: timedelta, progress: Mapping[Lease, str] = NO_PROGRESS
    ) -> list[Renewal]:
        """Start the given leases (id, fence, owner) anew; those that are somebody else's by now are left out."""
        said = ((*mine, progress[mine]) if mine in progress else mine for mine in leases)
        kept = [
            renewal
            for batch in batches(said)
            for renewal in self._server.run("renew", {"leases": batch, "lease": microseconds(lease)})
        ]
        return [Renewal(rows.text(id), fence, bool(cancel)) for id, fence, cancel in kept]

    def settle(self, settlement: Settlement) -> bool:
        """Write an attempt's end, its result or failure, and what follows it, by one script."""
        return self._move(settlement, "owner", patient=SETTLE_PATIENCE)

    def settle_unknown(self, settlement: Settlement) -> bool:
        """Move a job whose outcome is unknown to where a person, or a reconciler, says it belongs."""
        return self._move(settlement, "unknown")

    def begin(self) -> NoReturn:
        """Raises ``NotImplementedError``: a body's own writes are on another database."""
        raise NotImplementedError(f"{self} cannot keep G5: {self.limits['G5']}.")

    def _move(self, settlement: Settlement, compare: str, patient: int = 1, **compared: Any) -> bool:
        mark = _mark()
        move, parts = given.move(settlement, compare, mark, **compared)
        words = {"id": settlement.id, "mark": mark, "move": move, "keep_refused": microseconds(bounds.KEEP_REFUSED)}
        moved: int = self._server.run("settle", words, *parts, patience=self._server.patience.times(patient))
        return moved == 1

    def outcome(self, id: str) -> tuple[State, StoredResult | None, StoredFailure | None] | None:
        """The stored outcome of a job; None where there is no such row."""
        return rows.outcome(self._server.run("outcome", {"id": id}))

    def told(self, jobs: Iterable[tuple[str, int]]) -> None:
        """Note that Celery was told how these jobs (id, fence) ended."""
        for batch in batches(jobs):
            self._server.run("told", {"jobs": batch})

    def note(self, id: str, failure: StoredFailure) -> None:
        """Keep a failure that moves nothing: an attempt that was superseded."""
        self._server.run("note", {"id": id, "failure": given.failure(failure, failure.fence)})

    # -- relay ----------------------------------------------------------------------------------------------------

    def take(self, token: str, limit: int, hold: timedelta) -> list[Outgoing]:
        """Take due rows to publish, oldest due first."""
        words = {
            "token": token, "limit": limit, "hold": microseconds(hold), "pause": microseconds(FOLLOWER_PAUSE),
            "rounds": bounds.TAKE_ROUNDS,
        }  # fmt: skip
        now, *taken = self._server.run("take", words)
        return [rows.outgoing(one, int(now)) for one in taken]

    def sent(self, token: str, ids: Sequence[str], suspect_after: timedelta) -> int:
        """Mark rows as published; how many still carried the token."""
        words = {
            "token": token, "suspect_after": microseconds(suspect_after), "doublings": bounds.DOUBLINGS,
            "keep_carried": microseconds(bounds.KEEP_CARRIED),
        }  # fmt: skip
        return sum(self._server.run("sent", {**words, "ids": batch}) for batch in batches(ids))

    def postpone(self, token: str, rows: Sequence[tuple[str, timedelta]], *, refused: bool) -> int:
        """Give taken rows back, each due after its delay."""
        words = {"token": token, "refused": int(refused)}
        back = ((id, microseconds(delay)) for id, delay in rows)
        return sum(self._server.run("postpone", {**words, "rows": batch}) for batch in batches(back))

    def end(self, token: str, settlement: Settlement) -> bool:
        """End a taken, pending row, if it still carries the token."""
        return self._move(settlement, "relay", relay=token)

    def next_due(self) -> timedelta | None:
        """How long until :meth:`take` would find something."""
        due = self._server.run("next_due", {})
        return None if due is None else timedelta(microseconds=int(due))

    # -- sweep ----------------------------------------------------------------------------------------------------

    def lapsed(self, limit: int) -> list[Attempt]:
        """Running rows whose lease has ended."""
        return self._overdue(State.RUNNING, limit, timedelta(0))

    def suspects(self, limit: int, margin: timedelta = timedelta(0)) -> list[Attempt]:
        """Sent rows that nobody claimed for longer than they should have waited."""
        return self._overdue(State.SENT, limit, margin)

    def _overdue(self, state: State, limit: int, margin: timedelta) -> list[Attempt]:
        words = {"state": state.value, "limit": limit, "margin": microseconds(margin)}
        now, *found = self._server.run("overdue", words)
        return [rows.attempt(one, int(now)) for one in found]

    def recover(self, attempt: Attempt, settlement: Settlement) -> bool:
        """Move a lapsed or suspect row, if nothing about it has changed since."""
        seen = as_seen(attempt, settlement)
        return self._move(seen, "lapse", was=attempt.state.value, was_reason=attempt.reason or "")

    def defer(self, attempts: Sequence[Attempt], delay: timedelta) -> int:
        """Look at suspects again after the delay; how many of them were still suspects."""
        ids = (attempt.id for attempt in attempts)
        return sum(self._server.run("defer", {"ids": batch, "delay": microseconds(delay)}) for batch in batches(ids))

    def retain(self, limit: int) -> int:
        """Forget up to ``limit`` rows whose time is over, with all that belongs to them."""
        words = {"silent": microseconds(bounds.SILENT), "keep_handled": microseconds(bounds.KEEP_HANDLED)}
        gone: int = self._server.run("retain", {"limit": min(limit, BATCH), **words})
        return gone

    def retain_quarantined(self, limit: int, keep: timedelta) -> int:
        """Forget messages that have been in quarantine for longer than ``keep``, oldest first; how many went."""
        gone: int = self._server.run("retain_quarantined", {"limit": min(limit, BATCH), "keep": microseconds(keep)})
        return gone

    # -- people ---------------------------------------------------------------------------------------------------

    def job(self, id: str) -> Job | None:
        """One job with its failures."""
        row, failures = self._server.run("job", {"id": id})
        return None if row is None else rows.job(id, rows.row_in(row), rows.failures(failures))

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
        """Jobs, newest first. Filters other than states and cause are compared row by row, a thousand rows a round trip."""
        if cause is not None:
            indices = [f"cause:{cause}"]
        else:
            indices = [f"state:{state.value}" for state in states] or ["created"]
        wanted = {"task": task, "queue": queue, "tenant": tenant, "key_hash": key, "failure_class": failure_class}
        ages = {"older": older, "younger": younger, "ended_before": ended_before, "ended_since": ended_since}
        words: dict[str, Any] = {
            "indices": indices,
            "budget": _BUDGET,
            "wanted": {name: value for name, value in wanted.items() if value is not None},
            "ages": {name: microseconds(age) for name, age in ages.items() if age is not None},
        }
        if states:
            words["states"] = {state.value: True for state in states}
        found: list[Job] = []
        place: Any = after
        more = limit > 0
        while more:
            here = {} if place is None else {"after": place}
            more, reached, *page = self._server.run(
                "jobs", {**words, **here, "limit": min(limit - len(found), _BUDGET)}
            )
            found += [rows.job(rows.text(id), rows.row_in(row)) for id, row in page]
            more = more and len(found) < limit
            place = [*map(rows.text, reached)]
        return found

    def backlog(self, limit: int) -> list[Backlog]:
        """What waits and runs, by queue, of the jobs that are due first; a thousand of each state at most."""
        return rows.backlog(self._server.run("backlog", {"limit": min(limit, _BUDGET)}))

    def clock(self) -> datetime:
        """Now, by the server's clock."""
        return rows.instant_at(self._server.run("clock", {}))

    def payload(self, id: str, generation: int | None = None) -> StoredPayload | None:
        """The stored message of a job; the latest generation by default."""
        words = {"id": id} if generation is None else {"id": id, "generation": str(generation)}
        return rows.payload(self._server.run("payload", words))

    def cancel(self, id: str) -> Cancelled:
        """Cancel a waiting job at once, ask a running one to stop, and say so when it is too late."""
        asked = {"id": id, "mark": _mark(), "keep": microseconds(bounds.KEEP_CANCELLED)}
        words = [*map(rows.text, self._server.run("cancel", asked))]
        return Cancelled(id, words[0], State(words[1]) if len(words) > 1 else None)

    def replay(self, ids: Sequence[str]) -> list[Replayed]:
        """Send dead jobs again, each by itself."""
        return [answer for batch in batches(ids) for answer in self._replay(batch)]

    def _replay(self, ids: list[str]) -> list[Replayed]:
        answers = self._server.run("replay", {"ids": ids, "mark": _mark()})
        return [rows.replayed(id, answer) for id, answer in zip(ids, answers, strict=True)]

    def replay_edited(self, edit: Edit) -> Replayed:
        """Send a dead job again with another message, in one script."""
        words = {"generation": edit.generation, "fingerprint": edit.fingerprint}
        said = {
            "id": edit.id,
            "mark": _mark(),
            "edit": {name: word for name, word in words.items() if word is not None},
        }
        return rows.replayed(edit.id, self._server.run("replay_edited", said, *given.letter(edit.payload)), edit)

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
        words = {
            "queue": queue[:255], "headers": headers, "content_type": content_type, "content_encoding": content_encoding,
            "reason": reason,
        }  # fmt: skip
        if delivery is not None:
            words["delivery"] = delivery
        cleaned = {name: clean(word) for name, word in words.items()}
        limits = {"mark": token or _mark(), "most": QUARANTINE_MOST, "most_bytes": QUARANTINE_BYTES}
        number, gone = self._server.run("quarantine", {**cleaned, **limits}, body)
        if gone:
            logger.error(
                "the quarantine is full: its %d oldest messages are gone, to make room for message %d", gone, number
            )
        return int(number)

    def quarantined(self, limit: int = 100, *, handled: bool = False, before: int | None = None) -> list[Quarantined]:
        """Messages in quarantine, newest first, without their bodies."""
        words = {"limit": limit, "index": "quarantine" if handled else "quarantine_kept"}
        here = {} if before is None else {"before": before}
        return list(map(rows.quarantined, self._server.run("quarantined", {**words, **here})))

    def move_message(self, number: int, was: str, state: str, why: str) -> bool:
        """Note what a person does about a message in quarantine."""
        words = {"number": number, "was": was, "state": state, "why": clean(why), "handled": state in HANDLED}
        moved: int = self._server.run("move_message", {**words, "mark": _mark()})
        return moved == 1

    def message(self, number: int) -> Quarantined | None:
        """One message in quarantine, with its body; None where there is no such number."""
        [found] = self._server.run("quarantined", {"number": number})
        return None if found[1][0] is None else rows.quarantined(found)

    # -- who is alive -----------------------------------------------------------------------------------------------

    def hold(self, name: str, token: str, ttl: timedelta, detail: str = "") -> bool:
        """Take or keep a named slot for ``ttl``; False while another token holds it alive."""
        words = {"name": name, "token": token, "ttl": microseconds(ttl), "detail": detail}
        held: int = self._server.run("hold", words)
        return held == 1

    def release(self, name: str, token: str) -> None:
        """Give a slot back, if it is still this token's."""
        self._server.run("release", {"name": name, "token": token})

    def heartbeats(self) -> list[Heartbeat]:
        """Every slot and process that has said it is alive and was not forgotten since."""
        now, *found = self._server.run("heartbeats", {})
        return sorted((rows.heartbeat(one, int(now)) for one in found), key=lambda beat: beat.name)


def _mark() -> str:
    """A name for one call, by which the script knows what an earlier try of it has written."""
    return secrets.token_hex(8)
