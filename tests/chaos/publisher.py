"""The publisher as a stage has it: a process that may be killed, is looked at while nobody publishes, and goes on where its notes end."""

from __future__ import annotations

import sys

from sqlalchemy import text

from tests.integration.fleet import Fleet, Process

from .notes import IN_DOUBT, Noted, Notes, Sight
from .plan import IN_TRANSACTIONS, Plan, Unit

__all__ = ["Publisher", "doubts"]

#: So many of the units that were asked last, and of those that come next, are looked at when it was killed.
_LOOKED_AT = 25

_ORDERS = text("SELECT COUNT(*) FROM chaos_order WHERE name = :name")


class Publisher:
    """A process of ``tests.chaos.publish``, and those that come after it.

    Args:
        joins: whether the store joins transactions.
    """

    def __init__(self, fleet: Fleet, plan: Plan, *, joins: bool) -> None:
        self.plan = plan
        self.sights: list[Sight] = []
        self._fleet = fleet
        self._joins = joins
        self._file = fleet.folder / "notes"
        self._notes = Notes(self._file)
        self._process: Process | None = None
        self._since = 0

    def start(self) -> None:
        """Begin to publish, or go on after a kill."""
        number = len(self._fleet.workers)
        self._since = self._notes.size()
        without = [] if self._joins else sorted(IN_TRANSACTIONS)
        command = [
            sys.executable, "-m", "tests.chaos.publish", str(self._file), str(self.plan.seed), str(self.plan.size), *without,
        ]  # fmt: skip
        self._process = Process(command, self._fleet.environment, self._fleet.folder / f"publisher{number}.log")
        self._fleet.workers.append(self._process)

    def is_alive(self) -> bool:
        """Whether it still publishes; raises where it has ended without having published all."""
        assert self._process is not None
        status = self._process.process.poll()
        if status:
            raise AssertionError(f"the publisher has ended ({status}):\n{self._process.output()[-4000:]}")
        return status is None

    def is_asking(self) -> bool:
        """Whether it is in the middle of a step, and not on its way up."""
        return self._notes.is_asking(self._since)

    def kill(self) -> Sight:
        """SIGKILL; what was there then."""
        assert self._process is not None
        self._process.kill()
        noted = self.noted()
        sent = [step.unit for step in self.plan.steps if step.what == "send"]
        done = sum(unit.name in noted.asked for unit in sent)
        near = sent[max(0, done - _LOOKED_AT) : done + _LOOKED_AT]
        units = [(unit, noted.told(unit), self._look(unit)) for unit in near]
        self.sights.append(Sight(f"after {done} units", units))
        return self.sights[-1]

    def noted(self) -> Noted:
        """What it was told, so far."""
        return Noted().take(self.plan, self._notes.lines())

    def _look(self, unit: Unit) -> frozenset[str]:
        """Which parts are there. A commit that was on its way may become visible in the middle of the first look, and is so as a whole in the second."""
        return self._parts(unit) and self._parts(unit)

    def _parts(self, unit: Unit) -> frozenset[str]:
        return frozenset(part for part in unit.written if self._is_there(part, is_order=part == unit.name))

    def _is_there(self, part: str, *, is_order: bool) -> bool:
        if not is_order:
            return self._fleet.store.job(part) is not None
        with self._fleet.app.shop().connect() as connection:
            return bool(connection.scalar(_ORDERS, {"name": part}))


def doubts(sight: Sight) -> str:
    """What is in doubt, and what is there of it, in words."""
    return ", ".join(
        f"{unit.name}: {len(there)} of {len(unit.written)} parts"
        for unit, told, there in sight.units
        if told == IN_DOUBT
    )
