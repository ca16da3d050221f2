"""What is left of a run, as plain values: what was planned, what the publisher was told, the rows, what bodies left, and the calls of the store.

Nothing here asks anybody anything; :mod:`tests.chaos.stage` collects it, and :mod:`tests.chaos.checker` reads it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import cached_property
from itertools import pairwise
from typing import Any

from celery_guard.job.row import Job
from celery_guard.job.state import ENDED

from .notes import ACCEPTED, IN_DOUBT, Noted, Sight
from .plan import Plan, Promise, Unit
from .turns import Turns

__all__ = ["Call", "Entry", "History", "calls_from", "entries_from"]


@dataclass(frozen=True, slots=True)
class Entry:
    """A line of the effect log: ``enter``, ``return <value>``, or ``missing <order>``."""

    what: str
    id: str
    fence: int

    @property
    def value(self) -> int | None:
        word, _, value = self.what.partition(" ")
        return int(value) if word == "return" else None


@dataclass(frozen=True, slots=True)
class Call:
    """A call of the store about one job: it took effect at one moment from ``began`` to ``ended``, in seconds of the machine.

    ``answer`` is None where the process did not live to write it down, or was told of no answer.
    """

    op: str
    id: str
    fence: int
    owner: str | None
    began: float
    ended: float | None = None
    #: Granted, settled, renewed, recovered; None: nobody knows.
    answer: bool | None = None
    #: The lease that was asked for, in seconds.
    lease: float = 0


@dataclass
class History:
    """One run."""

    plan: Plan
    noted: Noted
    rows: Mapping[str, Job]
    entries: Sequence[Entry]
    #: In order of their beginnings.
    calls: Sequence[Call]
    #: Jobs whose writes in their own transaction are there, and how often.
    booked: Mapping[str, int]
    #: Names of the orders that are there.
    orders: Sequence[str]
    #: When the last fault was over, and when it was looked what is left, by the store's clock.
    healed: datetime
    looked: datetime
    lease: timedelta
    #: Who could act, and when.
    turns: Turns
    #: How long a relay rests that finds nothing to do.
    poll: timedelta
    #: What was there whenever the publisher was killed.
    sights: Sequence[Sight] = ()

    @cached_property
    def of(self) -> Mapping[str, Sequence[Entry]]:
        """The effect log by job."""
        found: defaultdict[str, list[Entry]] = defaultdict(list)
        for entry in self.entries:
            found[entry.id].append(entry)
        return found

    def returned(self, id: str) -> list[int]:
        """What bodies of the job have returned."""
        return [entry.value for entry in self.of.get(id, ()) if entry.value is not None]

    def entered(self, id: str) -> list[int]:
        """The fences of the attempts that have entered the job's body, in order."""
        return [entry.fence for entry in self.of.get(id, ()) if entry.what == "enter"]

    def accepted(self) -> Iterator[tuple[Unit, Promise]]:
        """Every job of a unit that was accepted, as the publisher was told or as is there though it was told nothing."""
        for unit, told, there in self.end.units:
            if told == ACCEPTED or (told == IN_DOUBT and there):
                for promise in unit.promises:
                    yield unit, promise

    def waits(self) -> Iterator[tuple[datetime, timedelta]]:
        """From when on nothing ended, and for how long of the time in which somebody could have ended something, since the last fault was over.

        Nobody can before the first worker has come up. From then on it is the store's clock that counts, but no faster than a relay has its turns:
        each counts for as long as an idle relay rests.
        """
        able = max(self.healed, self.turns.ready or self.healed)
        ends = sorted(job.finished for job in self.rows.values() if job.finished and job.finished > able)
        if any(job.state not in ENDED for job in self.rows.values()):
            ends.append(self.looked)
        for before, after in pairwise([able, *ends]):
            yield before, min(after - before, self.turns.between(before, after) * self.poll)

    @cached_property
    def end(self) -> Sight:
        """What is there of each unit at the end."""
        there = {*self.rows, *self.orders}
        return Sight(
            "at the end", [(unit, self.noted.told(unit), frozenset(unit.written) & there) for unit in self.plan.units]
        )


def entries_from(lines: Iterable[Sequence[Any]]) -> list[Entry]:
    """The effect log from its lines: [what, id, attempt, fence]."""
    return [Entry(what, id, fence) for what, id, _, fence in lines]


def calls_from(lines: Iterable[Mapping[str, Any]]) -> list[Call]:
    """What is known of claims, renewals, settles and recoveries, from the lines of a trace; what begins a call comes before its answer."""
    begun: dict[str, Mapping[str, Any]] = {}
    found: list[Call] = []
    for line in lines:
        if "op" in line:
            begun[line["call"]] = line
        else:
            found += _calls(begun.pop(line["call"]), (line["at"] / 1e9, line["answer"]))
    for line in begun.values():
        found += _calls(line, None)
    return sorted(found, key=lambda call: call.began)


def _calls(line: Mapping[str, Any], answered: tuple[float, Any] | None) -> Iterator[Call]:
    op, began = line["op"], line["at"] / 1e9
    ended, answer = answered or (None, None)
    if op == "claim":
        word, *given = answer or [""]
        granted = word == "granted"
        fence, owner = given if granted else (0, None)
        known = None if answered is None else granted
        yield Call(op, line["ids"][0], fence, owner, began, ended, known, line["lease"])
    elif op == "renew":
        for id, (fence, owner) in line["leases"].items():
            kept = None if answered is None else id in answered[1]
            yield Call(op, id, fence, owner, began, ended, kept, line["lease"])
    elif op in ("settle", "commit"):
        yield Call("settle", line["ids"][0], line["mine"][0], line["mine"][1], began, ended, answer)
    elif op == "recover" and line["seen"][0] == "running":
        yield Call(op, line["ids"][0], line["seen"][2], line["seen"][3], began, ended, answer)
