"""What is going to be sent: drawn from a seed before anything runs, with what each job promises. No I/O.

A unit is what a publisher sends in one go: a job, a canvas, an order with its job. Its jobs' ids are said beforehand, so that what becomes of each can
be looked up whoever died. A unit's name is ``<kind>-<number>``; the ids of its jobs begin with it.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from celery_guard.job.state import State

__all__ = ["CRASHES", "IN_TRANSACTIONS", "Plan", "Promise", "Step", "Unit", "make_plan", "nap"]

#: So many processes may die under a job, unless it is one that kills its own.
CRASHES = 50

#: So many die under one of those.
POISONOUS = 2

#: A body that uses the database itself fails when that is away, and is tried so often.
_TRIES = 5

_DONE = frozenset({State.SUCCEEDED})
_DEAD = frozenset({State.DEAD})

#: Kinds of units, and how often each is drawn.
_WEIGHTS = {
    "plain": 30, "late": 8, "nap": 6, "flaky": 8, "doomed": 2, "exhausted": 2, "poison": 1, "keyed": 10, "chain": 8, "group": 4,
    "chord": 5, "nested": 3, "twins": 3, "order": 10, "book": 8, "cancel": 4,
}  # fmt: skip

#: These need a store that joins transactions.
IN_TRANSACTIONS = frozenset({"order", "book"})

#: One of so many orders is rolled back.
_ROLLED_BACK = 3


@dataclass(frozen=True, slots=True)
class Promise:
    """What becomes of one job, once it was accepted."""

    id: str
    #: How it may end.
    ends: frozenset[State] = _DONE
    #: What its body returns; None where it does not return.
    value: int | None = None
    #: Attempts at most, besides those under which a process died.
    attempts: int = 1
    #: Processes that may die under it.
    crashes: int = CRASHES
    #: It writes through its job's transaction.
    books: bool = False
    #: It has a key, and so its body runs only if no other of that key's has.
    keyed: bool = False
    #: It is sent again under a key that is held, so that it leaves no row.
    again: bool = False


@dataclass(frozen=True, slots=True)
class Unit:
    """What is sent in one go."""

    kind: str
    number: int
    #: A variation of its kind: failures before it goes well, say.
    how: int = 0

    @property
    def name(self) -> str:
        return f"{self.kind}-{self.number}"

    @property
    def is_rolled_back(self) -> bool:
        return self.kind == "order" and self.how == 0

    def id(self, part: object = 0) -> str:
        """The id of one of its jobs."""
        return f"{self.name}.{part}"

    @property
    def returns(self) -> int:
        """How many of its bodies are to return, for certain."""
        if self.is_rolled_back or self.kind == "cancel":
            return 0
        own = sum(promise.value is not None and not promise.again for promise in self.promises)
        return own - 1 if self.kind == "twins" else own

    @property
    def written(self) -> tuple[str, ...]:
        """What is there once it is accepted, all of it or nothing: its first jobs, by id, and its order, by name."""
        match self.kind:
            case "order":
                return (self.id(), self.name)
            case "nested":
                return (self.id(0), self.id(1), self.id("last"))
            case "group":
                parts = 4
            case "chord":
                parts = 3
            case "twins":
                parts = 2
            case _:
                parts = 1
        return tuple(map(self.id, range(parts)))

    @property
    def promises(self) -> tuple[Promise, ...]:
        """Its jobs, in the order of the canvas; that on which the rest hangs is the last."""
        n, id = self.number, self.id
        match self.kind:
            case "flaky":
                return (Promise(id(), value=n, attempts=self.how + 1),)
            case "doomed":
                return (Promise(id(), _DEAD),)
            case "exhausted":
                return (Promise(id(), _DEAD, attempts=3),)
            case "poison":
                return (Promise(id(), _DEAD, crashes=POISONOUS),)
            case "keyed":
                return (
                    Promise(id(), value=n, keyed=True),
                    *(Promise(id(turn), value=n, keyed=True, again=True) for turn in range(1, self.how + 1)),
                )
            case "cancel":
                return (Promise(id(), frozenset({State.CANCELLED, State.SUCCEEDED}), n),)
            case "book":
                return (Promise(id(), value=n, attempts=_TRIES, books=True), Promise(id("child"), value=n))
            case "order":
                return (Promise(id(), value=n, attempts=_TRIES),)
            case "chain":
                return tuple(Promise(id(step), value=n + step) for step in range(3))
            case "group":
                return tuple(Promise(id(member), value=n + member) for member in range(4))
            case "chord":
                return (*_flaky_parts(self, 3), Promise(id("sum"), value=3 * n + 3))
            case "nested":
                inner = Promise(id("inner"), value=2 * n + 1)
                return (
                    *_flaky_parts(self, 2),
                    inner,
                    Promise(id("last"), value=n),
                    Promise(id("sum"), value=3 * n + 1),
                )
            case "twins":
                parts = (Promise(id(member), value=n, keyed=True) for member in range(2))
                return (*parts, Promise(id("sum"), value=2 * n))
            case _:
                return (Promise(id(), value=n),)


def _flaky_parts(unit: Unit, count: int) -> list[Promise]:
    """Members of a chord, the first of which fails at first."""
    return [Promise(unit.id(part), value=unit.number + part, attempts=3 if part == 0 else 1) for part in range(count)]


@dataclass(frozen=True, slots=True)
class Step:
    """What the publisher does next with a unit: ``send`` it, send it ``again``, or ``cancel`` it."""

    what: str
    unit: Unit
    turn: int = 0


@dataclass(frozen=True, slots=True)
class Plan:
    """All units, and the publisher's steps in their order."""

    seed: int
    #: The jobs that were asked for; there are a few more.
    size: int
    units: tuple[Unit, ...]
    steps: tuple[Step, ...] = field(repr=False)

    @property
    def jobs(self) -> int:
        return sum(len(unit.promises) for unit in self.units)

    @property
    def returns(self) -> int:
        """How many bodies are to return: what progress is measured by."""
        return sum(unit.returns for unit in self.units)


def make_plan(seed: int, size: int, without: Iterable[str] = ()) -> Plan:
    """Units with ``size`` jobs in all, or a few more, but for those kinds."""
    draw = random.Random(f"{seed} plan")
    weights = {kind: weight for kind, weight in _WEIGHTS.items() if kind not in without}
    # one of each kind at least, and the first two orders meet different fates
    kinds = [*weights, *(["order"] if "order" in weights else [])]
    draw.shuffle(kinds)
    seen: Counter[str] = Counter()
    units: list[Unit] = []
    jobs = 0
    while jobs < size or len(units) < len(kinds):
        kind = kinds[len(units)] if len(units) < len(kinds) else draw.choices([*weights], [*weights.values()])[0]
        units.append(Unit(kind, len(units), _how(kind, seen[kind], draw)))
        seen[kind] += 1
        jobs += len(units[-1].promises)
    return Plan(seed, size, tuple(units), _steps(units, draw))


def _how(kind: str, before: int, draw: random.Random) -> int:
    if kind == "order":
        return before % _ROLLED_BACK
    upper = {"flaky": 3, "keyed": 2}.get(kind, 0)
    return draw.randint(min(1, upper), upper)


def _steps(units: Sequence[Unit], draw: random.Random) -> tuple[Step, ...]:
    """Each unit is sent in turn; what comes later for it falls anywhere behind."""
    placed: list[tuple[float, Step]] = []
    for place, unit in enumerate(units):
        placed.append((place, Step("send", unit)))
        later = sorted(draw.uniform(place, len(units)) for _ in range(unit.how if unit.kind == "keyed" else 0))
        placed += [(at, Step("again", unit, turn)) for turn, at in enumerate(later, 1)]
        if unit.kind == "cancel":
            placed.append((place + draw.uniform(0.5, 40), Step("cancel", unit)))
    return tuple(step for _, step in sorted(placed, key=lambda at: at[0]))


def nap(number: int) -> float:
    """How long a plain body takes, in seconds: a few milliseconds, the same for each number."""
    return number * 7919 % 20 / 1000
