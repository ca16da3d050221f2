"""Replays in the database: every step is a compare-and-set, so it does not matter who drives one, or how many.

Killed between two writes, this is what is left:

=====================================  ===============================================================================
after the replay, before its jobs      a replay that is ``building``, which nobody drives; it is aborted, or forgotten
after the turn, before a release       the turn passes; the next one releases what this one did not
between two releases                   each job has moved together with its place, or neither has
after a release, before its end        the job's own row says what became of it; whoever looks next notes it
=====================================  ===============================================================================
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any

from sqlalchemy.engine import Connection, RowMapping
from sqlalchemy.exc import IntegrityError
from sqlalchemy.sql.dml import Update
from sqlalchemy.sql.selectable import Select

from celery_guard.job.instant import microseconds
from celery_guard.job.letter import Handled
from celery_guard.job.replay import SAME_CAUSE, ItemState, NewReplay, Progress, Replay, ReplayState
from celery_guard.job.state import ENDED, State

from . import people, rows
from .statements import replays as statements

__all__ = [
    "add",
    "begin",
    "failed",
    "moved",
    "observe",
    "of",
    "one",
    "picked",
    "release",
    "retain",
    "skipped",
    "what_became",
]

#: How many jobs that are on their way are looked at in one go.
_LOOK = 1000


def begin(connection: Connection, new: NewReplay) -> None:
    """Write a replay without a job in it."""
    if connection.execute(statements.known(new.id)).first() is not None:
        return
    names = ("actor", "role", "origin")
    texts = {name: rows.storable(getattr(new, name))[:255] for name in names}
    connection.execute(
        statements.begin(
            id=new.id, tenant=new.tenant, target=rows.storable(new.target), reason=rows.storable(new.reason), every=microseconds(new.every),
            cap=new.cap, stop_share=new.stop_share, same_cause=new.same_cause, **texts,
        )
    )  # fmt: skip


def add(connection: Connection, id: str, ids: Sequence[str], first: int, again: bool) -> int:
    """Add dead jobs; how many. ``again``: those from ``first`` on may be what an earlier try has added."""
    batch = connection.execute(statements.known(id)).mappings().one_or_none()
    if batch is None or batch["state"] != ReplayState.BUILDING:
        return 0
    found = {row.id: row for row in connection.execute(statements.candidates(ids)) if row.state == State.DEAD}
    new = [
        {"batch": id, "job": row.id, "position": first + place, "tenant": row.tenant, "cause": row.cause,
         "actor": batch["actor"], "reason": ""}
        for place, row in enumerate(found[one] for one in dict.fromkeys(ids) if one in found)
    ]  # fmt: skip
    try:
        with connection.begin_nested():
            return _place(connection, id, new)
    except IntegrityError:
        # some are in it already: to ask for them each time would cost more, the more there are
        placed: dict[str, int] = {row.job: row.position for row in connection.execute(statements.placed(id, ids))}
        mine = sum(position >= first for position in placed.values()) if again else 0
        return mine + _place(connection, id, [row for row in new if row["job"] not in placed])


def _place(connection: Connection, id: str, new: list[dict[str, Any]]) -> int:
    if new:
        connection.execute(statements.put(), new)
        connection.execute(statements.counted(id, len(new)))
    return len(new)


def moved(connection: Connection, move: Update, id: str, again: bool, left: Mapping[str, Any]) -> bool:
    """Change a replay, where the move finds it as it was seen. ``again``: where it is ``left`` so, an earlier try may have changed it."""
    if connection.execute(move).rowcount:
        return True
    found = connection.execute(statements.known(id)).mappings().one_or_none() if again else None
    return found is not None and left.items() <= {**found}.items()


def observe(connection: Connection, id: str, wave: int, run: int) -> Progress:
    """Note what became of jobs that were sent again, and count, without a look at the whole set."""
    for state in (ItemState.RELEASED, ItemState.FAILING):
        became: dict[tuple[ItemState, str], list[str]] = defaultdict(list)
        for row in connection.execute(statements.on_their_way(id, state, _LOOK)):
            now = what_became(row.state, row.retries, row.replays_now != row.replays, row.cause == row.cause_now)
            if now is not None and now[0] is not state:
                became[now].append(row.job)
        for (to, why), ids in became.items():
            connection.execute(statements.ended_as(id, state, ids, to, why))
    same, waiting, on_way = connection.execute(statements.standing(id, run, SAME_CAUSE)).one()
    return Progress(_counts(connection, statements.wave_counts(id, wave)), same, waiting, bool(on_way))


def what_became(state: str | None, retries: int, again: bool, same_cause: bool) -> tuple[ItemState, str] | None:
    """What a job that was sent again came to; None while it was not tried yet."""
    if state is None:
        return ItemState.ENDED, "it was forgotten"
    if again:
        return ItemState.ENDED, "somebody else replayed it"
    if state == State.SUCCEEDED:
        return ItemState.SUCCEEDED, ""
    if state == State.DEAD:
        return ItemState.FAILED, SAME_CAUSE if same_cause else ""
    if state in ENDED or state == State.UNKNOWN:
        return ItemState.ENDED, f"it is {State(state)}"
    return (ItemState.FAILING, "") if retries else None


def _counts(connection: Connection, which: Select[Any]) -> Mapping[ItemState, int]:
    return {ItemState(state): count for state, count in connection.execute(which)}


def picked(connection: Connection, id: str, wave: int, turn: int, count: int) -> list[str]:
    """Take the turn, and choose who goes; nobody, where it is another's turn or too early."""
    if not connection.execute(statements.tick(id, wave, turn, count)).rowcount:
        return []
    cap = connection.execute(statements.known(id)).mappings().one()["cap"]
    if cap is None:
        return [row.job for row in connection.execute(statements.waiting(id, (), count))]
    on_way: Counter[str] = Counter({row[0]: row[1] for row in connection.execute(statements.crowded(id))})
    chosen: list[str] = []
    while len(chosen) < count:
        full = [tenant for tenant, n in on_way.items() if n >= cap]
        more = 0
        for row in connection.execute(statements.waiting(id, full, len(chosen) + count)):
            if row.job in chosen or len(chosen) == count:
                continue
            if row.tenant is not None:
                if on_way[row.tenant] >= cap:
                    continue
                on_way[row.tenant] += 1
            chosen.append(row.job)
            more += 1
        if not more:
            break
    return chosen


def release(connection: Connection, id: str, job_id: str, wave: int, *, lock_keys: bool) -> bool:
    """Send one job again together with its place in the replay; False where the replay does not run, or another was faster."""
    if not connection.execute(statements.place(id, job_id, ItemState.RELEASED, wave=wave)).rowcount:
        return False
    answer = people.replay(connection, job_id, [], lock_keys=lock_keys)
    if answer.answer != "replayed":
        connection.execute(statements.skip(id, job_id, answer.why))
        return False
    found = people.job_of(connection, job_id)
    assert found is not None
    connection.execute(statements.remember(id, job_id, found.replays))
    return True


def of(row: RowMapping, counts: Mapping[ItemState, int] | None = None) -> Replay:
    """A replay as people read it."""
    created = rows.instant(row["created"])
    assert created is not None
    same = (
        "id",
        "actor",
        "role",
        "origin",
        "reason",
        "target",
        "tenant",
        "cap",
        "stop_share",
        "same_cause",
        "total",
        "wave",
        "run",
    )
    return Replay(
        state=ReplayState(row["state"]),
        created=created,
        ended=rows.instant(row["ended"]),
        every=timedelta(microseconds=row["every"]),
        turn=row["next_at"],
        why=row["why"] or "",
        counts=counts or {},
        **{name: row[name] for name in same},
    )


def one(connection: Connection, id: str) -> Replay | None:
    """One replay with its counts."""
    row = connection.execute(statements.known(id)).mappings().one_or_none()
    return None if row is None else of(row, _counts(connection, statements.counts(id)))


def skipped(connection: Connection, id: str, limit: int) -> list[Handled]:
    """Jobs that were not sent again, and why."""
    return [Handled(row.job, "skipped", row.why or "") for row in connection.execute(statements.skipped(id, limit))]


def failed(connection: Connection, id: str, limit: int) -> list[Handled]:
    """Jobs that have failed again, those sent last first."""
    return [Handled(row.job, row.state, row.why or "") for row in connection.execute(statements.failed(id, limit))]


def retain(connection: Connection, keep: timedelta, limit: int) -> int:
    """End what nobody goes on with. Delete places of jobs in a replay that is over for longer; the replay itself once it has none.

    How many rows went.
    """
    connection.execute(statements.give_up(microseconds(keep)))
    id = connection.execute(statements.over(microseconds(keep))).scalar()
    if id is None:
        return 0
    ids = list(connection.execute(statements.last(id, limit)).scalars())
    if not ids:
        return connection.execute(statements.forget(id)).rowcount
    return connection.execute(statements.forget_items(id, ids)).rowcount
