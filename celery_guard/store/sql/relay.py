"""What a relay asks of the store. Each is one transaction; no row stays locked while a message is published."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from datetime import timedelta

from sqlalchemy.engine import Connection

from celery_guard.job.instant import microseconds
from celery_guard.job.row import Outgoing
from celery_guard.job.state import ENDED, State
from celery_guard.store.bounds import TAKE_ROUNDS
from celery_guard.store.calls import FOLLOWER_PAUSE

from . import rows
from .count import publish
from .statement import Link
from .statements import relay as statements

__all__ = ["next_due", "postpone", "sent", "sent_at_once", "take", "take_at_once"]


def take_at_once(link: Link, token: str, limit: int, hold: timedelta) -> list[Outgoing] | None:
    """PostgreSQL: the same as :func:`take` in one statement; None, and nothing is taken, where something due follows a job that goes on."""
    values = {"token_": token, "limit_": limit, "hold_": microseconds(hold)}
    found = link.rows(statements.take_at_once, values)
    held, ids = found[0][:2]
    if held:
        return None
    taken = {row[2]: rows.outgoing(row[2:]) for row in found} if ids else {}
    # its message may have been written between the begin of the statement and the lock: another statement sees it
    bare = [id for id, row in taken.items() if row.payload is None]
    if bare:
        again = {row[0]: row for row in link.rows(statements.taken_again, {**values, "ids_": bare})}
        # one that is not there has lost its token since, and nothing can be said of its message
        for id in bare:
            if id in again:
                taken[id] = rows.outgoing(again[id])
            else:
                del taken[id]
    return [taken[id] for id in ids or () if id in taken]


def take(connection: Connection, token: str, limit: int, hold: timedelta, *, skip_locked: bool) -> list[Outgoing]:
    """Put the token on what is due, oldest first; followers of jobs that have not ended are sent back to wait."""
    found: list[tuple[int, str]] = []
    for _ in range(TAKE_ROUNDS):
        due, held = _candidates(connection, limit - len(found), skip_locked)
        if due:
            connection.execute(statements.take(token, [id for _, id in due], microseconds(hold)))
            found += due
        if not held:
            break
        _send_back(connection, held)
        if len(found) >= limit:
            break
    if not found:
        return []
    order = {id: place for place, (_, id) in enumerate(sorted(found))}
    taken = connection.execute(statements.taken(token, list(order)))
    return sorted(map(rows.outgoing, taken), key=lambda row: order[row.id])


def _candidates(connection: Connection, limit: int, skip_locked: bool) -> tuple[list[tuple[int, str]], dict[str, str]]:
    """What to publish, and what follows a job that has not ended, with that job."""
    due: list[tuple[int, str]] = []
    held: dict[str, str] = {}
    for waiting in (True, False):
        for id, instant, holder, state in connection.execute(statements.candidates(waiting, limit, skip_locked)):
            if waiting and _goes_on(state):
                held[id] = holder
            else:
                due.append((instant, id))
    due.sort()
    return due[:limit], held


def _goes_on(state: str | None) -> bool:
    """Whether a job in this state, which another one follows, has yet to end."""
    return state is not None and State(state) not in ENDED


def _send_back(connection: Connection, followers: dict[str, str]) -> None:
    """Tell the holders that they are waited for; those that have ended meanwhile will not look.

    The order is what makes it safe: a holder that ends after it was told releases its followers, and one that ended
    before is seen to have ended here.
    """
    connection.execute(statements.wait_on(followers, microseconds(FOLLOWER_PAUSE)))
    connection.execute(statements.await_holders(set(followers.values())))
    states = connection.execute(statements.states_of_holders(followers))
    free = [id for id, state in states if not _goes_on(state)]
    if free:
        connection.execute(statements.due_now(free))


def sent(connection: Connection, token: str, ids: Sequence[str], suspect_after: timedelta) -> int:
    """Mark rows as published; how many still carried the token."""
    publish(connection, token, ids)
    pause = microseconds(suspect_after)
    left = len(ids)
    for move in (statements.published, statements.travelled, statements.spoken_again):
        if left:
            # each row is for one of the three, and most batches are for the first
            left -= connection.execute(move(token, ids, pause)).rowcount
    return len(ids) - left


def sent_at_once(link: Link, token: str, ids: Sequence[str], suspect_after: timedelta) -> int:
    """PostgreSQL: the same in one statement."""
    values = {"token_": token, "ids_": list(ids), "pause_": microseconds(suspect_after), "part_": secrets.token_hex(16)}
    return int(link.rows(statements.mark_at_once, values)[0][0])


def postpone(connection: Connection, token: str, given_back: Sequence[tuple[str, timedelta]], refused: bool) -> int:
    """Give rows back, each due after its delay; how many still carried the token."""
    return sum(
        connection.execute(statements.postpone(token, id, microseconds(delay), refused)).rowcount
        for id, delay in given_back
    )


def next_due(link: Link) -> timedelta | None:
    """How long until a row is due that a relay would take."""
    now, *dues = link.rows(statements.next_due, {})[0]
    waiting = [due for due in dues if due is not None]
    return rows.duration(min(waiting) - now) if waiting else None
