"""What the store does to one job's row, each step as a pure function: the statements of ``store/sql`` in thirty words each.

A step is given the row and what its caller believes, and answers the row as it is afterwards, or None where it moved nothing.
Time is one bit: ``due`` is ``LATER`` until the adversary, or the trace of a real run, says that it has come.

Three tests lean on these functions: the checker walks through every order of them, a random walk compares them with the real
store step by step, and the traces of real runs are read against them.
"""

from __future__ import annotations

from collections.abc import Hashable
from enum import Enum
from typing import NamedTuple

__all__ = [
    "ENDED",
    "End",
    "Mine",
    "Row",
    "Seen",
    "Wrong",
    "cancel",
    "claim",
    "claimable",
    "come",
    "end",
    "lapsed",
    "postpone",
    "published",
    "recover",
    "renew",
    "replay",
    "settle",
    "speak",
    "take",
    "told",
    "was_written",
]

NEVER, LATER, NOW = 0, 1, 2

ENDED = frozenset({"succeeded", "dead", "cancelled", "dropped"})


class Wrong(Enum):
    """What is left out in a wrong variant, to see the checker find what it costs."""

    NO_FENCE = "settle compares neither fence nor owner, only that the job runs"
    ATTEMPT_FOR_FENCE = "settle compares the number of the attempt"
    FENCE_WITHOUT_OWNER = "a claim that is repeated takes a running job for its own"
    CLOCK_OF_THE_WORKER = "whether a lease is over is told by the clock of the one who asks"
    SETTLE_WITHOUT_COMPARE = "settle writes by id alone"
    TELL_BEFORE_SETTLE = "Celery is told before the end is written"
    SWEEP_WITHOUT_COMPARE = "the sweep writes by id alone"
    MARK_WITHOUT_TOKEN = "the relay marks by id alone"
    EVERYBODY_TELLS = "whoever finds an untold end tells it"
    TELLER_WITHOUT_TIME = "who becomes the one to tell is given no time for it"
    REPLAY_WITHOUT_FENCE = "a replay goes on under the fence of the end that it undoes"
    SWEEP_WITHOUT_REASON = "the sweep does not compare why the job was waiting"
    SWEEP_NEVER = "nobody looks for leases that have lapsed"
    UNBOUNDED_CRASHES = "the sweep does not count crashes"
    CLAIM_ENDED = "a claim does not look whether the job has ended"
    SPEAK_WITHOUT_COMPARE = "who tells does not compare the end that was read before"


class Row(NamedTuple):
    """One job, as far as the lease and the fence go."""

    state: str = "pending"
    reason: str | None = "new"
    fence: int = 0
    owner: Hashable = None
    attempts: int = 0
    crashes: int = 0
    publications: int = 0
    relay: Hashable = None
    due: int = NOW
    told: bool = False
    cancel: bool = False


class Mine(NamedTuple):
    """What an attempt has in its hand to show that the job is its own."""

    fence: int
    owner: Hashable
    attempt: int


class End(NamedTuple):
    """How an attempt ends."""

    state: str
    reason: str | None = None
    charged: bool = True
    crashed: bool = False
    told: bool = False
    due: int = LATER


class Seen(NamedTuple):
    """What the sweep saw when it looked."""

    state: str
    reason: str | None
    fence: int
    owner: Hashable


# -- an attempt -------------------------------------------------------------------------------------------------------


def claimable(row: Row) -> bool:
    """Published; or waiting, and due or in the hands of a relay."""
    return row.state == "sent" or (row.state == "pending" and (row.due == NOW or row.relay is not None))


def claim(row: Row, owner: Hashable, wrong: Wrong | None = None) -> Row | None:
    """The first statement of a claim."""
    if not claimable(row) and not (wrong is Wrong.CLAIM_ENDED and row.state in ENDED):
        return None
    return row._replace(
        state="running", fence=row.fence + 1, owner=owner, attempts=row.attempts + 1, publications=0, relay=None,
        due=LATER, told=False,
    )  # fmt: skip


def speak(row: Row, state: str, fence: int, wrong: Wrong | None = None) -> Row | None:
    """The last one: become the delivery that tells what was read in between."""
    if row.state not in ENDED or row.told or row.relay is None:
        return None
    if wrong is not Wrong.SPEAK_WITHOUT_COMPARE and (row.state, row.fence) != (state, fence):
        return None
    if wrong is Wrong.EVERYBODY_TELLS:
        return row
    return row._replace(relay=None, due=row.due if wrong is Wrong.TELLER_WITHOUT_TIME else LATER)


def renew(row: Row, mine: Mine) -> Row | None:
    """Start the lease anew."""
    owned = row.state == "running" and (row.fence, row.owner) == (mine.fence, mine.owner)
    return row._replace(due=LATER) if owned else None


def settle(row: Row, mine: Mine, how: End, wrong: Wrong | None = None) -> Row | None:
    """Write the end of an attempt, also late, if nobody claimed since."""
    uncontested = row.state in ("pending", "sent") and row.reason == "lost"
    owns = (row.fence, row.owner) == (mine.fence, mine.owner)
    if wrong is Wrong.NO_FENCE:
        owns = True
    elif wrong is Wrong.ATTEMPT_FOR_FENCE:
        owns = row.attempts == mine.attempt
    if wrong is not Wrong.SETTLE_WITHOUT_COMPARE and not (owns and (row.state == "running" or uncontested)):
        return None
    return _moved(row, how)


def was_written(row: Row, mine: Mine, how: End) -> bool:
    """The answer to a settle was lost: had it been written?"""
    moved_on = how.state == "pending" and row.state == "sent"
    return (
        (row.state == how.state or moved_on)
        and row.reason == how.reason
        and (row.fence, row.owner) == (mine.fence, mine.owner)
    )


def told(row: Row, fence: int) -> Row | None:
    """Note that Celery was told."""
    ended = row.state in ENDED and row.fence == fence
    return row._replace(told=True, due=NEVER, relay=None) if ended else None


def _moved(row: Row, how: End) -> Row:
    return row._replace(
        state=how.state, reason=how.reason, relay=None, told=how.told, attempts=row.attempts - (not how.charged),
        crashes=row.crashes + how.crashed, due=NEVER if how.told and how.state in ENDED else how.due,
    )  # fmt: skip


# -- the relay --------------------------------------------------------------------------------------------------------


def take(row: Row, token: Hashable) -> Row | None:
    """Take what is due: a job that waits, or an end that Celery was not told."""
    due = row.due == NOW and (row.state == "pending" or row.state in ENDED)
    return row._replace(relay=token, due=LATER) if due else None


def published(row: Row, token: Hashable, wrong: Wrong | None = None) -> Row | None:
    """Mark what was published; an end that is to be told keeps the token for the one that tells it."""
    if row.relay != token and wrong is not Wrong.MARK_WITHOUT_TOKEN:
        return None
    if row.state == "pending":
        return row._replace(state="sent", due=LATER, publications=row.publications + 1, relay=None)
    if row.state in ENDED:
        return row._replace(due=LATER, publications=row.publications + 1)
    return None


def postpone(row: Row, token: Hashable, due: int) -> Row | None:
    """Give a row back."""
    mine = row.relay == token and (row.state == "pending" or row.state in ENDED)
    return row._replace(relay=None, due=due) if mine else None


def end(row: Row, token: Hashable, how: End) -> Row | None:
    """End a row that cannot be published."""
    return _moved(row, how) if row.state == "pending" and row.relay == token else None


# -- the sweep --------------------------------------------------------------------------------------------------------


def lapsed(row: Row, wrong: Wrong | None = None) -> bool:
    """Whether the sweep has to decide about the row: its lease is over, or its message may be lost."""
    over = row.due == NOW or wrong is Wrong.CLOCK_OF_THE_WORKER
    if row.state == "running":
        return over and wrong is not Wrong.SWEEP_NEVER
    return row.state == "sent" and row.due == NOW


def recover(row: Row, seen: Seen, how: End, wrong: Wrong | None = None) -> Row | None:
    """Take a job from its owner, or publish it again, if nothing has changed."""
    reason = seen.reason if wrong is Wrong.SWEEP_WITHOUT_REASON else row.reason
    same = Seen(row.state, reason, row.fence, row.owner) == seen
    due = row.due == NOW or wrong is Wrong.CLOCK_OF_THE_WORKER
    return _moved(row, how) if wrong is Wrong.SWEEP_WITHOUT_COMPARE or (same and due) else None


# -- people, and time -------------------------------------------------------------------------------------------------


def cancel(row: Row) -> tuple[Row, str]:
    """Cancel a job that waits; ask one that runs to stop."""
    if row.state in ("pending", "sent"):
        return row._replace(state="cancelled", reason=None, cancel=True, relay=None, told=False, due=NOW), "cancelled"
    if row.state == "running":
        return row._replace(cancel=True), "asked"
    return row, "too late"


def replay(row: Row, wrong: Wrong | None = None) -> Row | None:
    """Send a dead job again, under a new fence: who still speaks of the old end is not heard."""
    if row.state != "dead":
        return None
    return Row(reason="replay", fence=row.fence + (wrong is not Wrong.REPLAY_WITHOUT_FENCE), owner=row.owner)


def come(row: Row) -> Row | None:
    """Time passes: what was to be looked at later is due now."""
    return row._replace(due=NOW) if row.due == LATER else None
