"""A run as it should be, for tests of the checker of histories."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta, timezone

from celery_guard.job.row import Job
from celery_guard.job.state import Kind, State
from tests.chaos.history import Call, Entry, History
from tests.chaos.notes import IN_DOUBT, NEVER_ASKED, Noted, Sight
from tests.chaos.plan import Promise, Unit, make_plan
from tests.chaos.turns import Turns

LEASE = timedelta(seconds=3)
HEALED = datetime(2026, 1, 1, tzinfo=timezone.utc)
LOOKED = HEALED + timedelta(minutes=5)
POLL = timedelta(seconds=0.2)
TURNS = Turns(HEALED, {1: [HEALED + turn * POLL for turn in range(1500)]})


def good(seed: int) -> History:
    """What a run leaves in which everything went as it should, with retries, and a crash under every seventh job."""
    plan = make_plan(seed, 120)
    noted = Noted()
    history = History(plan, noted, {}, [], [], {}, [], HEALED, LOOKED, LEASE, TURNS, POLL)
    rows: dict[str, Job] = {}
    entries: list[Entry] = []
    calls: list[Call] = []
    booked: dict[str, int] = {}
    orders: list[str] = []
    for unit in plan.units:
        noted.asked.add(unit.name)
        if unit.is_rolled_back:
            noted.rolled_back.add(unit.name)
            continue
        noted.accepted.add(unit.name)
        if unit.kind == "order":
            orders.append(unit.name)
        if unit.kind == "keyed":
            noted.answers[unit.name] = [unit.id()] * (unit.how + 1)
        for turn, promise in enumerate(unit.promises):
            if promise.again:
                continue
            end = min(promise.ends)
            follows = unit.kind == "twins" and turn == 1
            fence = 0 if end is State.CANCELLED else promise.attempts + (unit.number % 7 == 0 and not follows)
            if end is State.CANCELLED:
                noted.cancels[promise.id] = ("cancelled", 0)
            _ran(unit, promise, fence, entries, calls, quietly=follows)
            if promise.books:
                booked[promise.id] = 1
            rows[promise.id] = Job(
                id=promise.id, task="t", queue="q", kind=Kind.RUN, state=end, reason=None, created=HEALED, told=True, fence=fence,
                attempts=fence, crashes=max(0, fence - promise.attempts), holder=unit.id(0) if follows else None,
                finished=HEALED + timedelta(seconds=unit.number),
            )  # fmt: skip
    made = replace(history, rows=rows, entries=entries, calls=calls, booked=booked, orders=orders)
    return replace(made, sights=[_sight(made, seed)])


def _sight(history: History, seed: int) -> Sight:
    """The publisher was killed half way, in the middle of a step that was carried out, or was not."""
    half = len(history.end.units) // 2
    units = [
        (unit, told, there) if place < half else
        (unit, IN_DOUBT, there if seed % 2 else frozenset()) if place == half else
        (unit, NEVER_ASKED, frozenset())
        for place, (unit, told, there) in enumerate(history.end.units)
    ]  # fmt: skip
    return Sight(f"after {half} units", units)


def _ran(unit: Unit, promise: Promise, fences: int, entries: list[Entry], calls: list[Call], *, quietly: bool) -> None:
    for fence in range(1, fences + 1):
        at, owner, crashed = unit.number * 100 + fence * 10.0, f"w-{fence}", fence == 1 and fences > promise.attempts
        calls.append(Call("claim", promise.id, fence, owner, at, at + 0.1, True, 3))
        if not quietly:
            entries.append(Entry("enter", promise.id, fence))
        if crashed:
            calls.append(Call("recover", promise.id, fence, owner, at + 4, at + 4.1, True))
            continue
        if fence == fences and promise.value is not None and not quietly:
            entries.append(Entry(f"return {promise.value}", promise.id, fence))
        calls.append(Call("renew", promise.id, fence, owner, at + 1, at + 1.1, True, 3))
        calls.append(Call("settle", promise.id, fence, owner, at + 2, at + 2.1, True))


# -- what breaks it ---------------------------------------------------------------------------------------------------
