"""Jobs of one key: who holds it, who follows, and what each is given. A second small world beside that of the lease.

Three calls of one key and payload arrive, in any order and at any moment, inside canvases: one holds the key, the others follow it. An
attempt is one step here (:mod:`.rules` has its inside); a relay looks at a follower in the three steps that the store takes: send it
back, tell the holder that it is waited for, look at the holder once more. The adversary lets attempts succeed or die, cancels once, and
replays a dead job where that is looked at.

A follower that was sent back is due again after a pause (a minute) whatever happens. Without replays the pause is left out, so that what
leans on it is found.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from enum import Enum
from typing import NamedTuple

__all__ = ["BREAKS", "Found", "Job", "Keys", "Wrong", "explore"]

ENDED = frozenset({"succeeded", "dead", "cancelled"})
HOLDS = frozenset({"pending", "succeeded"})


class Wrong(Enum):
    """What is left out in a wrong variant, to see what it costs."""

    KEY_BEFORE_LOOK = "a call is accepted without a look at who holds the key"
    FOLLOWER_HOLDS = "a follower takes the key, too"
    FOLLOWER_RUNS = "a claim does not look whether the row follows"
    OUTCOME_OF_ITS_OWN = "a follower is settled with what it is itself"
    LOOK_BEFORE_TELL = "the relay looks at the holder before it tells it that it is waited for"
    REPLAY_TAKES_KEY = "a replay does not look who holds the key now"


#: The promise that each of them breaks.
BREAKS = {
    Wrong.KEY_BEFORE_LOOK: "one outcome a key",
    Wrong.FOLLOWER_HOLDS: "one holder a key",
    Wrong.FOLLOWER_RUNS: "the body runs once a key",
    Wrong.OUTCOME_OF_ITS_OWN: "a follower is given its holder's outcome",
    Wrong.LOOK_BEFORE_TELL: "nobody waits for ever",
    Wrong.REPLAY_TAKES_KEY: "one holder a key",
}


class Job(NamedTuple):
    """A job, as far as its key goes."""

    state: str = "unknown"
    held: bool = False
    holder: int | None = None
    #: Whether a relay would find it. False: it waits for its holder's end (or, much later, for another look).
    due: bool = True
    #: Others wait for it, as the relay has told it.
    awaited: bool = False
    #: Whose outcome it was given: its own number, or its holder's.
    value: tuple[int, str] | None = None
    runs: int = 0


class State(NamedTuple):
    """Every job, and where the relay is with a follower: (follower, step)."""

    jobs: tuple[Job, ...]
    looking: tuple[int, str] | None = None
    replays: int = 1
    cancels: int = 1


class Found(NamedTuple):
    """A promise that breaks, and the shortest way there."""

    promise: str
    way: tuple[str, ...]


class Keys:
    """What may happen next, and what must hold."""

    def __init__(self, wrong: Wrong | None = None, *, calls: int = 3, replays: int = 0) -> None:
        self.calls = calls
        self.wrong = wrong
        self.replays = replays

    def start(self) -> State:
        return State((Job(),) * self.calls, replays=self.replays)

    def steps(self, now: State) -> Iterator[tuple[str, State]]:
        for me, job in enumerate(now.jobs):
            if job.state == "unknown":
                yield f"accept {me}", self._accept(now, me)
            elif job.state == "pending":
                yield from self._waiting(now, me, job)
            elif job.state == "dead" and now.replays:
                yield f"replay {me}", self._replay(now._replace(replays=now.replays - 1), me)
        if now.looking is not None:
            yield self._look_on(now, *now.looking)

    def _accept(self, now: State, me: int) -> State:
        """One transaction: the unique index lets one in, and the others meet it."""
        if self.wrong is Wrong.KEY_BEFORE_LOOK:
            return _put(now, me, Job("pending"))
        holder = self._holder(now)
        if holder is None:
            return _put(now, me, Job("pending", held=True))
        return _put(now, me, Job("pending", held=self.wrong is Wrong.FOLLOWER_HOLDS, holder=holder))

    def _waiting(self, now: State, me: int, job: Job) -> Iterator[tuple[str, State]]:
        free = job.holder is None or self.wrong is Wrong.FOLLOWER_RUNS
        if now.cancels and free:
            yield f"cancel {me}", self._end(now._replace(cancels=now.cancels - 1), me, "cancelled", None)
        if not job.due:
            # One order needs the pause: a replay of the holder between the relay's last two steps, after an end that released nobody.
            if self.replays:
                yield f"the pause of {me} is over", _put(now, me, job._replace(due=True))
            return
        if free:
            for how in ("succeeded", "dead"):
                yield f"run {me}: {how}", self._end(now, me, how, (me, how), ran=True)
        elif now.looking is None:
            assert job.holder is not None
            held = now.jobs[job.holder]
            if held.state not in ENDED:
                yield f"look at {me}", self._send_back(now, me)
            elif held.value is not None or held.state == "cancelled":
                how = "succeeded" if held.state == "succeeded" else "dead"
                yield f"give {me}", self._end(now, me, how, held.value or (job.holder, held.state))

    def _send_back(self, now: State, me: int) -> State:
        if self.wrong is Wrong.LOOK_BEFORE_TELL:
            return now._replace(looking=(me, "look"))
        return _put(now, me, now.jobs[me]._replace(due=False))._replace(looking=(me, "tell"))

    def _look_on(self, now: State, me: int, step: str) -> tuple[str, State]:
        job = now.jobs[me]
        holder = job.holder
        assert holder is not None
        if step == "tell":
            held = now.jobs[holder]
            told = now if held.state in ENDED else _put(now, holder, held._replace(awaited=True))
            return f"tell {holder} of {me}", told._replace(looking=None if self._careless else (me, "look"))
        ended = now.jobs[holder].state in ENDED
        if self._careless:
            # it looks first, and sends back and tells afterwards
            if ended:
                return f"saw {holder} ended", now._replace(looking=None)
            return f"send back {me}", _put(now, me, job._replace(due=False))._replace(looking=(me, "tell"))
        return f"look at {holder} again", _put(now, me, job._replace(due=job.due or ended))._replace(looking=None)

    @property
    def _careless(self) -> bool:
        return self.wrong is Wrong.LOOK_BEFORE_TELL

    def _end(self, now: State, me: int, how: str, value: tuple[int, str] | None, *, ran: bool = False) -> State:
        """One transaction: the end, the key if it is free now, and those who wait are due."""
        job = now.jobs[me]
        early = self.wrong is Wrong.OUTCOME_OF_ITS_OWN and job.holder is not None
        after = job._replace(
            state=how, value=(me, how) if early else value, held=job.held and how in HOLDS, runs=job.runs + ran,
            due=True,
        )  # fmt: skip
        now = _put(now, me, after)
        if job.awaited:
            for other, waits in enumerate(now.jobs):
                if waits.holder == me and waits.state == "pending":
                    now = _put(now, other, waits._replace(due=True))
        return now

    def _replay(self, now: State, me: int) -> State:
        """A dead job takes its key again, or is skipped where another has it."""
        holder = self._holder(now)
        job = now.jobs[me]
        if holder is not None and holder != job.holder and self.wrong is not Wrong.REPLAY_TAKES_KEY:
            return now
        return _put(
            now, me, job._replace(state="pending", value=None, held=job.holder is None, due=True, awaited=False)
        )

    def _holder(self, now: State) -> int | None:
        return next((number for number, job in enumerate(now.jobs) if job.held), None)

    def broken(self, now: State) -> str | None:
        """The promise that does not hold in this state."""
        if sum(job.held for job in now.jobs) > 1:
            return "one holder a key"
        done = [number for number, job in enumerate(now.jobs) if job.state == "succeeded" and job.runs]
        if len(done) > 1:
            return "the body runs once a key" if self.wrong is Wrong.FOLLOWER_RUNS else "one outcome a key"
        for number, job in enumerate(now.jobs):
            if job.holder is not None and job.value is not None and job.value[0] == number:
                return "a follower is given its holder's outcome" if not job.runs else "the body runs once a key"
        return None

    def stuck(self, now: State) -> bool:
        """Nothing happens any more, and a job has not ended."""
        return any(job.state == "pending" for job in now.jobs)


def _put(now: State, me: int, job: Job) -> State:
    return now._replace(jobs=(*now.jobs[:me], job, *now.jobs[me + 1 :]))


def explore(world: Keys) -> tuple[int, Found | None]:
    """Every state that can be reached; how many, and the first promise that breaks, by the shortest way."""
    start = world.start()
    ways: dict[State, tuple[str, ...]] = {start: ()}
    waiting = deque([start])
    while waiting:
        now = waiting.popleft()
        promise = world.broken(now)
        moved = False
        for name, after in [] if promise else world.steps(now):
            moved = moved or after != now
            if after not in ways:
                ways[after] = (*ways[now], name)
                waiting.append(after)
        if promise is None and not moved and world.stuck(now):
            promise = "nobody waits for ever"
        if promise is not None:
            return len(ways), Found(promise, ways[now])
    return len(ways), None
