"""A replay: a frozen set of dead letters that is sent again in waves, and the rule by which it goes on or stops itself.

    building -> running -> done
                 |  ^
        pause,   v  | resume: the ramp begins anew
        or itself: paused | stopped -> aborted (for good; by itself once nobody has gone on with it for as long as dead letters are kept)

A wave is released at the replay's rate, at most so many of one tenant at a time. The next one, larger, begins when each of its jobs
was tried: it has ended, or failed at least once and waits for a retry of its own. Waves are 1, 5, 20, 80, ... up to 500.

It stops itself when more than ``stop_share`` of a wave has failed, so also when its first job has; or when more than ``same_cause`` of
what was sent since it was begun or resumed, and at least two jobs, died again of the cause they had died of before: what was to be
repaired is not. One letter that nothing can repair is no such sign, however small the share that it is. Nothing here depends on who looks: every step is a compare-and-set in the store, so any number of relays may drive one replay.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import Enum

__all__ = [
    "NOBODY",
    "OPEN",
    "SAME_CAUSE",
    "SAME_CAUSE_SHARE",
    "WIDEST",
    "ItemState",
    "NewReplay",
    "Progress",
    "Replay",
    "ReplayState",
    "why_stop",
    "window",
]

#: What a store notes of a job that died again of the cause it had died of before.
SAME_CAUSE = "the same cause"
#: What a store adds to why a replay was paused, or has stopped itself, when it ends one that was left so.
NOBODY = "; nobody has gone on with it"

#: Per cent of what was sent, unless somebody says otherwise.
SAME_CAUSE_SHARE = 5
#: Fewer that die again of their cause say nothing about the others.
_FEWEST = 2

_RAMP = (1, 5, 20, 80, 320)
#: No wave has more jobs.
WIDEST = 500


class ReplayState(str, Enum):
    """Where a replay is."""

    #: Its set is being frozen. One that stays so was left by a process that died, and is aborted.
    BUILDING = "building"
    RUNNING = "running"
    PAUSED = "paused"
    #: It has stopped itself; ``why`` says what it saw.
    STOPPED = "stopped"
    ABORTED = "aborted"
    DONE = "done"

    __str__ = str.__str__


#: A replay that is not over: it sends letters, or a person has to say how it goes on.
OPEN = (ReplayState.STOPPED, ReplayState.PAUSED, ReplayState.BUILDING, ReplayState.RUNNING)


class ItemState(str, Enum):
    """Where one job of a replay is."""

    WAITING = "waiting"
    #: Sent again; it has not been tried yet.
    RELEASED = "released"
    #: It has failed again, and waits for a retry of its own.
    FAILING = "failing"
    SUCCEEDED = "succeeded"
    #: It is a dead letter again.
    FAILED = "failed"
    #: It came to another end: cancelled, resolved, forgotten.
    ENDED = "ended"
    #: It was not sent again; ``why`` says why.
    SKIPPED = "skipped"

    __str__ = str.__str__


@dataclass(frozen=True, slots=True)
class NewReplay:
    """A replay to be begun."""

    id: str
    actor: str
    role: str
    origin: str
    reason: str
    #: The filter or the ids, in words.
    target: str
    tenant: str | None = None
    #: From one job to the next.
    every: timedelta = timedelta(milliseconds=100)
    #: How many jobs of one tenant may be on their way at a time; None: as many as there are.
    cap: int | None = None
    #: Per cent of a wave.
    stop_share: int = 20
    #: Per cent of what was sent since it was begun or resumed: so many may die again of the cause they had before it stops.
    same_cause: int = SAME_CAUSE_SHARE


@dataclass(frozen=True, slots=True)
class Replay:
    """A replay as it is. Times are aware datetimes in UTC, by the store's clock."""

    id: str
    state: ReplayState
    actor: str
    role: str
    origin: str
    reason: str
    target: str
    created: datetime
    tenant: str | None = None
    every: timedelta = timedelta(milliseconds=100)
    cap: int | None = None
    stop_share: int = 20
    same_cause: int = SAME_CAUSE_SHARE
    total: int = 0
    #: The wave that is under way, counted from 1, and the first one since it was begun or resumed.
    wave: int = 1
    run: int = 1
    #: The turn that is next, an instant of the store's clock; whoever releases compares it, so that each turn is taken once.
    turn: int = 0
    why: str = ""
    ended: datetime | None = None
    #: How many of its jobs are in each state; only filled where one replay is asked for.
    counts: Mapping[ItemState, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Progress:
    """What a look at a running replay found. It looks at one wave and at what is on its way, however large the set is."""

    #: How many jobs of the wave that is under way are in each state.
    wave: Mapping[ItemState, int]
    #: How many died again, since it was begun or resumed, of the cause that they had died of.
    same_cause: int
    #: How many wait; counted up to :data:`WIDEST`.
    waiting: int
    #: Whether a job of any wave is on its way, or waits for a retry of its own.
    on_way: bool

    @property
    def over(self) -> bool:
        """Nothing waits, and nothing is on its way."""
        return not self.waiting and not self.on_way

    @property
    def released(self) -> int:
        """How many of the wave were sent again."""
        return sum(count for state, count in self.wave.items() if state is not ItemState.SKIPPED)

    @property
    def tried(self) -> bool:
        """Each job of the wave that was sent was tried."""
        return not self.wave.get(ItemState.RELEASED)


def window(wave: int, run: int) -> int:
    """How many jobs a wave has, where ``run`` is the first one of the ramp."""
    step = wave - run
    return _RAMP[step] if step < len(_RAMP) else WIDEST


def why_stop(replay: Replay, seen: Progress) -> str:
    """Why the replay must not go on, in words; empty where it may."""
    sent = sum(window(wave, replay.run) for wave in range(replay.run, replay.wave)) + seen.released
    if seen.same_cause >= _FEWEST and seen.same_cause * 100 > replay.same_cause * sent:
        return f"{seen.same_cause} of {sent} jobs died again of the cause they had died of before, more than {replay.same_cause} %"
    bad = seen.wave.get(ItemState.FAILED, 0) + seen.wave.get(ItemState.FAILING, 0)
    size = max(seen.released, min(window(replay.wave, replay.run), seen.released + seen.waiting))
    if bad * 100 > replay.stop_share * size:
        return f"{bad} of {size} jobs of wave {replay.wave} have failed again, more than {replay.stop_share} %"
    return ""
