"""Statements of replays: the frozen set, its waves, and each job's place in it."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

from sqlalchemy import (
    ColumnElement,
    Integer,
    case,
    delete,
    exists,
    func,
    insert,
    literal,
    literal_column,
    null,
    or_,
    select,
    true,
    update,
)
from sqlalchemy.sql.dml import Delete, Insert, Update
from sqlalchemy.sql.selectable import Select

from celery_guard.job.replay import NOBODY, OPEN, WIDEST, ItemState, ReplayState
from celery_guard.job.state import State
from celery_guard.store.sql.clock import now
from celery_guard.store.sql.tables import job, replay, replay_batch

from . import fixed

__all__ = [
    "begin", "candidates", "counted", "counts", "crowded", "ended_as", "failed", "forget", "forget_items", "give_up", "known", "last", "listed", "move", "next_wave", "on_their_way",
    "over", "place", "placed", "put", "remember", "skip", "skipped", "standing", "tick", "waiting", "waiting_in", "wave_counts",
]  # fmt: skip


#: More replays than these are not open at once.
_OPEN_AT_ONCE = 100


def known(id: str) -> Select[Any]:
    """One replay."""
    return select(replay_batch).where(replay_batch.c.id == id)


def begin(**values: Any) -> Insert:
    """A replay without a job."""
    return insert(replay_batch).values(
        state=ReplayState.BUILDING.value, created=now(), next_at=now(), total=0, wave=1, run=1, **values
    )


def candidates(ids: Collection[str]) -> Select[Any]:
    """What a replay has to know of jobs that are to be in it. By nothing but their ids: of letters that have only just died a planner has no idea how many there are."""
    return select(job.c.id, job.c.state, job.c.tenant, job.c.cause).where(job.c.id.in_(ids))


def placed(id: str, ids: Collection[str]) -> Select[Any]:
    """Which of these jobs are in the replay already, and where. Not joined, for the same reason."""
    return select(replay.c.job, replay.c.position).where(replay.c.batch == id, replay.c.job.in_(ids))


def put() -> Insert:
    """A job's place in a replay."""
    return insert(replay).values(state=ItemState.WAITING.value, created=now())


def counted(id: str, more: int) -> Update:
    """So many more jobs are in the replay, if it is still being built."""
    return (
        update(replay_batch)
        .where(replay_batch.c.id == id, replay_batch.c.state == ReplayState.BUILDING.value)
        .values(total=replay_batch.c.total + more)
    )


def move(id: str, was: Collection[ReplayState], to: ReplayState, why: str, wave: int | None) -> Update:
    """Change the state of a replay."""
    found = update(replay_batch).where(
        replay_batch.c.id == id, replay_batch.c.state.in_([state.value for state in was])
    )
    if wave is not None:
        found = found.where(replay_batch.c.wave == wave)
    values: dict[str, Any] = {"state": to.value, "why": why}
    if to is ReplayState.RUNNING:
        # MySQL assigns from left to right, and a column that was assigned has its new value; others have the old one
        building = replay_batch.c.state == ReplayState.BUILDING.value
        wave_ = case((building, replay_batch.c.wave), else_=replay_batch.c.wave + 1)
        run_ = case((building, replay_batch.c.run), else_=replay_batch.c.wave + 1)
        return found.ordered_values(
            (replay_batch.c.run, run_), (replay_batch.c.wave, wave_), (replay_batch.c.next_at, now()),
            (replay_batch.c.ended, null()), (replay_batch.c.why, why), (replay_batch.c.state, to.value),
        )  # fmt: skip
    if to in (ReplayState.ABORTED, ReplayState.DONE):
        values["ended"] = now()
    elif to in (ReplayState.PAUSED, ReplayState.STOPPED):
        # it takes no turns; from here on it stands still
        values["next_at"] = now()
    return found.values(**values)


def next_wave(id: str, wave: int) -> Update:
    """Go on to the next wave."""
    return (
        update(replay_batch)
        .where(_runs(id), replay_batch.c.wave == wave)
        .values(wave=replay_batch.c.wave + literal_column("1", Integer))
    )


def tick(id: str, wave: int, turn: int, count: int) -> Update:
    """Take the turn to release: the next one is later by as much as so many jobs take."""
    return (
        update(replay_batch)
        .where(_runs(id), replay_batch.c.wave == wave, replay_batch.c.next_at == turn, replay_batch.c.next_at <= now())
        # a turn is never the one before
        .values(next_at=now() + replay_batch.c.every * count + 1)
    )


def _runs(id: str) -> Any:
    return (replay_batch.c.id == id) & (replay_batch.c.state == ReplayState.RUNNING.value)


def crowded(id: str) -> Select[Any]:
    """Tenants that have jobs on their way, and how many."""
    on_way = replay.c.state == ItemState.RELEASED.value
    return (
        select(replay.c.tenant, func.count())
        .where(replay.c.batch == id, on_way, replay.c.tenant.is_not(None))
        .group_by(replay.c.tenant)
    )


def waiting(id: str, full: Sequence[str], limit: int) -> Select[Any]:
    """Jobs that wait, in their order, but for those of tenants that have enough on their way."""
    found = select(replay.c.job, replay.c.tenant).where(replay.c.batch == id, replay.c.state == ItemState.WAITING.value)
    if full:
        found = found.where(or_(replay.c.tenant.is_(None), replay.c.tenant.not_in(full)))
    return found.order_by(replay.c.position).limit(limit)


def place(id: str, of: str, state: ItemState, *, wave: int | None = None, why: str | None = None) -> Update:
    """A waiting job is sent again, or skipped: if the replay runs."""
    running = exists(select(replay_batch.c.id).where(_runs(id)))
    return (
        update(replay)
        .where(replay.c.batch == id, replay.c.job == of, replay.c.state == ItemState.WAITING.value, running)
        .values(state=state.value, wave=wave, why=why, done=now())
    )


def remember(id: str, of: str, replays: int) -> Update:
    """How often the job had been replayed once it was sent again."""
    return update(replay).where(replay.c.batch == id, replay.c.job == of).values(replays=replays)


def skip(id: str, of: str, why: str) -> Update:
    """A job that was about to be sent again cannot be."""
    return update(replay).where(replay.c.batch == id, replay.c.job == of).values(state=ItemState.SKIPPED.value, why=why)


def on_their_way(id: str, state: ItemState, limit: int) -> Select[Any]:
    """Jobs that were sent again, and what became of them."""
    return (
        select(
            replay.c.job, replay.c.cause, replay.c.replays, job.c.state, job.c.retries, job.c.cause.label("cause_now"),
            job.c.replays.label("replays_now"),
        )
        .outerjoin(job, job.c.id == replay.c.job)
        .where(replay.c.batch == id, replay.c.state == state.value, _may_have_changed(state))
        .order_by(replay.c.position)
        .limit(limit)
    )  # fmt: skip


def _may_have_changed(state: ItemState) -> ColumnElement[bool]:
    """Not one that fails and still waits for its own retry: many of those must not hide who comes behind them."""
    if state is not ItemState.FAILING:
        return true()
    waits = job.c.state.in_([fixed(one) for one in (State.PENDING, State.SENT, State.RUNNING)])
    return or_(job.c.id.is_(None), ~waits, job.c.replays != replay.c.replays)


def ended_as(id: str, was: ItemState, ids: Collection[str], to: ItemState, why: str) -> Update:
    """Note what became of them."""
    return (
        update(replay)
        .where(replay.c.batch == id, replay.c.job.in_(ids), replay.c.state == was.value)
        .values(state=to.value, why=why or null())
    )


def counts(id: str) -> Select[Any]:
    """How many jobs of a replay are in each state: for people, since it looks at each."""
    return select(replay.c.state, func.count()).where(replay.c.batch == id).group_by(replay.c.state)


def wave_counts(id: str, wave: int) -> Select[Any]:
    """How many jobs of a wave are in each state."""
    # every state but that of those which are in no wave yet, since the index is by state first
    sent = [state.value for state in ItemState if state is not ItemState.WAITING]
    return counts(id).where(replay.c.wave == wave, replay.c.state.in_(sent))


def standing(id: str, run: int, why: str) -> Select[Any]:
    """How many have died again of their cause, from a wave on; how many wait, up to a wave's width; and whether any is on its way."""
    ours = replay.c.batch == id
    same = select(func.count()).where(
        ours, replay.c.state == ItemState.FAILED.value, replay.c.wave >= run, replay.c.why == literal(why)
    )
    # in the order of the index, or MariaDB reads all that is in the replay
    few = select(replay.c.position).where(ours, replay.c.state == ItemState.WAITING.value).order_by(replay.c.position)
    waiting = select(func.count()).select_from(few.limit(WIDEST).subquery())
    on_way = exists().where(ours, replay.c.state.in_([ItemState.RELEASED.value, ItemState.FAILING.value]))
    return select(same.scalar_subquery(), waiting.scalar_subquery(), on_way)


def skipped(id: str, limit: int) -> Select[Any]:
    """Jobs that were not sent again, and why."""
    state = replay.c.state == ItemState.SKIPPED.value
    return (
        select(replay.c.job, replay.c.why).where(replay.c.batch == id, state).order_by(replay.c.position).limit(limit)
    )


def failed(id: str, limit: int) -> Select[Any]:
    """Jobs that have failed again, those sent last first."""
    states = replay.c.state.in_([ItemState.FAILED.value, ItemState.FAILING.value])
    found = select(replay.c.job, replay.c.state, replay.c.why).where(replay.c.batch == id, states)
    return found.order_by(replay.c.position.desc()).limit(limit)


def listed(states: Collection[ReplayState], tenant: str | None, limit: int) -> Select[Any]:
    """Replays, newest first."""
    found = select(replay_batch).order_by(replay_batch.c.created.desc(), replay_batch.c.id).limit(limit)
    if states:
        found = found.where(replay_batch.c.state.in_([state.value for state in states]))
    return found if tenant is None else found.where(replay_batch.c.tenant == tenant)


def waiting_in(job_id: str) -> Select[Any]:
    """Replays that are not over, in which a job waits. They are few, and its place in each is known by both ids."""
    there = exists(
        select(replay.c.job)
        .where(replay.c.batch == replay_batch.c.id, replay.c.job == job_id, replay.c.state == ItemState.WAITING.value)
        .correlate(replay_batch)
    )
    return listed(OPEN, None, _OPEN_AT_ONCE).where(there)


def give_up(keep: int) -> Update:
    """End replays that were paused, or have stopped themselves, and that nobody has gone on with for a duration in microseconds."""
    stands = replay_batch.c.state.in_([state.value for state in (ReplayState.PAUSED, ReplayState.STOPPED)])
    return (
        update(replay_batch)
        .where(stands, replay_batch.c.next_at < now() - keep)
        .values(state=ReplayState.ABORTED.value, ended=now(), why=func.coalesce(replay_batch.c.why, "") + NOBODY)
    )


def over(keep: int) -> Select[Any]:
    """A replay that was over for longer than a duration in microseconds, or was never begun."""
    old = replay_batch.c.ended < now() - keep
    left = (replay_batch.c.state == ReplayState.BUILDING.value) & (replay_batch.c.created < now() - keep)
    return select(replay_batch.c.id).where(or_(old, left)).limit(1)


def last(id: str, limit: int) -> Select[Any]:
    """Some jobs of a replay."""
    return select(replay.c.job).where(replay.c.batch == id).limit(limit)


def forget_items(id: str, ids: Collection[str]) -> Delete:
    """Delete places of jobs in a replay."""
    return delete(replay).where(replay.c.batch == id, replay.c.job.in_(ids))


def forget(id: str) -> Delete:
    """Delete a replay."""
    return delete(replay_batch).where(replay_batch.c.id == id)
