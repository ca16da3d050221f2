"""An attempt at the store: claim, settle, and how a job has ended. Each works on a link and begins nothing itself."""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from datetime import timedelta
from enum import Enum
from typing import Any

from sqlalchemy.engine import Connection

from celery_guard.errors import KeyBusy
from celery_guard.job.instant import microseconds
from celery_guard.job.row import NewJob, StoredFailure, StoredResult
from celery_guard.job.settlement import Settlement
from celery_guard.job.state import ENDED, HOLDS_KEY, Reason, State
from celery_guard.job.tally import Count
from celery_guard.job.verdict import Busy, Claimed, Conflict, Leased, Missing, NotDue, Settled
from celery_guard.store.answers import Lease
from celery_guard.store.bounds import KEEP_REFUSED
from celery_guard.store.protocol import Renewal

from . import rows
from .accept import accept
from .count import beside
from .dialects import Traits
from .statement import Link, Row
from .statements import run as statements
from .statements.run import Beside, Compare, Fate

__all__ = ["Move", "claim", "note", "outcome", "renew", "settle", "stands_alone"]


def claim(link: Link, id: str, owner: str, lease: timedelta) -> Claimed:
    """Take the job for one attempt, or say why not. ``owner`` is this very call's."""
    values = {"id_": id, "owner_": owner, "lease_": microseconds(lease)}
    if link.traits.returning:
        for row in link.rows(statements.claim_returning, values):
            return rows.granted(id, owner, row)
    else:
        link.changed(statements.claim, values)
    for row in link.rows(statements.standing, values):
        return _stands(link, row, values)
    return Missing(id)


def _stands(link: Link, row: Row, values: Mapping[str, Any]) -> Claimed:
    id, owner = values["id_"], values["owner_"]
    word, why, has_it, told, relay = row[15:]
    state, reason = State(word), rows.reason(why)
    if state is State.RUNNING:
        return rows.granted(id, owner, row) if has_it == owner else _ignored(link, Leased(id, has_it))
    if state not in ENDED:
        return _ignored(link, NotDue(id, reason))
    seen = {**values, "state_": word, "fence_": row[0]}
    tell = not told and relay is not None and link.changed(statements.speak, seen) == 1
    _, result, failure = outcome(link, id) or (state, None, None)
    settled = Settled(id, state, reason, tell, result, failure, fence=row[0])
    return settled if tell else _ignored(link, settled)


def _ignored(link: Link, verdict: Leased | NotDue | Settled) -> Claimed:
    beside(link, Count.IGNORED, verdict.id)
    return verdict


def renew(
    connection: Connection, leases: list[Lease], lease: timedelta, progress: Mapping[Lease, str], traits: Traits
) -> list[Renewal]:
    """Start the leases anew; those that are still their owners'."""
    said = {mine: progress[mine] for mine in leases if mine in progress}
    write = statements.renew(leases, microseconds(lease), said)
    if traits.returning:
        kept = connection.execute(write.returning(*statements.RENEWED))
    else:
        connection.execute(write)
        kept = connection.execute(statements.renewed(leases))
    return [Renewal(id, fence, bool(cancel)) for id, fence, cancel in kept]


def outcome(link: Link, id: str) -> tuple[State, StoredResult | None, StoredFailure | None] | None:
    """The stored outcome of a job; None where there is no such row."""
    for state, _, failure_class, body, content_type, content_encoding in link.rows(statements.outcome, {"id_": id}):
        result = None if body is None else StoredResult(bytes(body), content_type, content_encoding)
        failure = None
        if failure_class is not None:
            failure = next(map(rows.stored_failure, link.rows(statements.failed, {"id_": id}, True)), None)
        return State(state), result, failure
    return None


def note(link: Link, id: str, failure: StoredFailure, number: int) -> None:
    """Keep a failure that moves nothing. ``number`` is the caller's, so that a repetition is known."""
    values = {**_failure_values(failure, number, failure.fence), "attempt_": failure.attempt}
    if link.inserted(statements.note, {"id_": id, **values}):
        beside(link, Count.FENCED, id)


# -- settle -----------------------------------------------------------------------------------------------------------


def stands_alone(link_writes_at_once: bool, settlement: Settlement) -> bool:
    """Whether one statement writes all of it, and is a transaction by itself."""
    if settlement.follow:
        return False
    return link_writes_at_once or not (settlement.result or settlement.failure or settlement.payload)


class Move(Enum):
    """What became of a settlement."""

    #: The row does not say any more what the settler believes; nothing was written.
    REFUSED = "refused"
    WRITTEN = "written"
    #: Written, and others wait for this outcome: release them.
    AWAITED = "awaited"


def settle(
    link: Link,
    settlement: Settlement,
    compare: Compare = Compare.OWNER,
    *,
    notify: bool = False,
    again: bool = False,
    number: int | None = None,
    **compared: Any,
) -> Move:
    """Move the row if it still says what ``compare`` names, and write what belongs to the move.

    ``compared`` are values of the comparison that the settlement does not have. ``again``: an earlier try, whose failure has the same ``number``,
    may have been written.
    """
    number = secrets.randbits(62) if number is None else number
    fate = _fate(settlement)
    values = {**_settlement_values(settlement, number, fate), **compared}
    followers = _move(link, fate, compare, _besides(settlement), values)
    if followers is None:
        if not (again and _was_written(link, settlement, compare, number)):
            return Move.REFUSED
        followers = 1
    else:
        for new in settlement.follow:
            _follow(link, new, notify, again)
    return Move.AWAITED if followers and settlement.state in ENDED else Move.WRITTEN


def _move(
    link: Link, fate: Fate, compare: Compare, besides: tuple[Beside, ...], values: Mapping[str, Any]
) -> int | None:
    """How many wait for the outcome; None where the row was not moved."""
    if besides and link.traits.one_statement:
        found = link.rows(statements.move_at_once, values, fate, compare, *besides)
        return found[0][0] if found else None
    if link.traits.returning:
        found = link.rows(statements.move_returning, values, fate, compare)
    elif not link.changed(statements.move, values, fate, compare):
        found = []
    else:
        found = [(0,)] if fate in (Fate.WAITS, Fate.PARKED) else link.rows(statements.following, values)
    if not found:
        return None
    for what in besides:
        link.changed(statements.beside, values, what)
    return int(found[0][0])


def _fate(settlement: Settlement) -> Fate:
    state = settlement.state
    if state is State.PENDING:
        return Fate.WAITS
    if state not in ENDED:
        return Fate.PARKED
    if state not in HOLDS_KEY:
        return Fate.ENDS_FREE
    return Fate.SUCCEEDS if _says_no_more(settlement) else Fate.ENDS


def _says_no_more(settlement: Settlement) -> bool:
    """Whether a success was an attempt as most are."""
    return (
        settlement.reason is None
        and settlement.failure is None
        and settlement.progress is None
        and settlement.interrupted is False
        and settlement.charged
        and not (settlement.crashed or settlement.retried)
    )


def _besides(settlement: Settlement) -> tuple[Beside, ...]:
    besides = []
    if settlement.result is not None:
        besides.append(Beside.RESULT)
    if settlement.failure is not None:
        besides.append(Beside.FAILURE)
    if settlement.payload is not None and settlement.state is State.PENDING:
        besides.append(Beside.PAYLOAD)
    return tuple(besides)


def _was_written(link: Link, settlement: Settlement, compare: Compare, number: int) -> bool:
    """The answer to an earlier try was lost: had it been written? Its failure tells, whatever became of the row since; without one, the row has to."""
    if settlement.failure is not None:
        return bool(link.rows(statements.noted, {"id_": settlement.id, "number_": number}))
    for state, reason, fence, owner in link.rows(statements.written, {"id_": settlement.id}):
        if reason != settlement.reason:
            return False
        if settlement.state is State.PENDING and state == State.RUNNING:
            # claimed since, which leaves the reason as it was; only the sweep writes the same one for somebody else
            return compare is not Compare.LAPSE and fence == settlement.fence + 1
        moved_on = settlement.state is State.PENDING and state == State.SENT
        same = compare is Compare.RELAY or (fence, owner) == (settlement.fence, settlement.owner)
        return (state == settlement.state or moved_on) and same
    return False


def _follow(link: Link, new: NewJob, notify: bool, again: bool) -> None:
    """Accept what follows. What cannot be accepted ends where a person sees it, not in silence."""
    (answer,) = accept(link, [new], notify=notify, again=again)
    match answer:
        case Busy():
            raise KeyBusy(f"The key of {new.task}, which follows, is being taken by another open transaction.")
        case Conflict(holder=holder) if holder != new.id:
            _refuse(link, new, holder)


def _refuse(link: Link, new: NewJob, holder: str) -> None:
    failure = StoredFailure(
        failure_class="permanent",
        type_name="celery_guard.errors.KeyConflict",
        message=f"{new.task}: this key was accepted before with other arguments, as job {holder}.",
        traceback="",
        cause="key_conflict",
        worker="",
    )
    accept(link, [new], notify=False, without_key=True)
    dead = Settlement(
        new.id, 0, "", State.DEAD, Reason.FAILED, tell_within=timedelta(0), keep=KEEP_REFUSED, failure=failure
    )
    settle(link, dead, Compare.NEW)


def _settlement_values(settlement: Settlement, number: int, fate: Fate) -> dict[str, Any]:
    values: dict[str, Any] = {
        "id_": settlement.id,
        "fence_": settlement.fence,
        "owner_": settlement.owner,
        "told_": int(settlement.told),
        "tell_within_": None if settlement.told else microseconds(settlement.tell_within),
        "keep_": microseconds(settlement.keep),
    }
    if fate is not Fate.SUCCEEDS:
        values.update(_said_values(settlement))
    if settlement.failure is not None:
        values.update(_failure_values(settlement.failure, number, settlement.fence))
    if settlement.result is not None:
        values["result_body_"] = settlement.result.body
        values["content_type_"] = settlement.result.content_type
        values["content_encoding_"] = settlement.result.content_encoding
    if settlement.payload is not None:
        values["body_"] = settlement.payload.body
        values["headers_"] = settlement.payload.headers
        values["delivery_"] = settlement.payload.delivery
    return values


def _said_values(settlement: Settlement) -> dict[str, Any]:
    return {
        "state_": settlement.state.value,
        "reason_": None if settlement.reason is None else settlement.reason.value,
        "delay_": microseconds(settlement.delay),
        "uncharged_": int(not settlement.charged),
        "crashed_": int(settlement.crashed),
        "retried_": int(settlement.retried),
        "interrupted_": int(settlement.interrupted is True),
        "kept_": int(settlement.interrupted is not False),
        "regenerated_": int(settlement.payload is not None),
        "task_": settlement.task,
        "queue_": settlement.queue,
        "kind_": None if settlement.kind is None else settlement.kind.value,
        "failure_class_": None,
        "cause_": None,
        "progress_": settlement.progress,
    }


def _failure_values(failure: StoredFailure, number: int, fence: int) -> dict[str, Any]:
    return {
        "number_": number,
        "failure_fence_": failure.fence or fence,
        "attempt_": failure.attempt or None,
        "failure_class_": failure.failure_class,
        "type_name_": rows.storable(failure.type_name)[:255],
        "message_": rows.storable(failure.message),
        "traceback_": rows.storable(failure.traceback),
        "cause_": rows.storable(failure.cause)[:255],
        "worker_": rows.storable(failure.worker)[:255],
        "truncated_": int(failure.truncated),
    }
