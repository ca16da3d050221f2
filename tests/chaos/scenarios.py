"""Which faults meet which stack, and how a scenario is played."""

from __future__ import annotations

import json
import os
import random
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from .checker import check, measured
from .faults import Fault, kill_child, kill_node, kill_relay
from .history import History
from .plan import IN_TRANSACTIONS, make_plan
from .stage import Stage, open_stage

__all__ = ["SCENARIOS", "Report", "Scenario", "new_seed", "play"]

#: How often faults are looked for, in seconds.
_LOOK_EVERY = 0.05

#: A fault comes though its share of the work is not done, after so many seconds of nothing.
_HANGING = 20.0


@dataclass(frozen=True, slots=True)
class Scenario:
    """A stack, and the faults that happen on it, in this order, spread over the work."""

    broker: str
    store: str
    faults: tuple[Fault, ...]
    #: Servers of its own, to be killed; wires before them, to be cut.
    private: bool = False
    wired: bool = False


@dataclass
class Report:
    """What came of it."""

    name: str
    seed: int
    log: Sequence[str]
    problems: dict[str, list[str]]
    measured: dict[str, float]
    history: History = field(repr=False)

    def __str__(self) -> str:
        found = [f"  {rule}: {problem}" for rule, problems in self.problems.items() for problem in problems[:10]]
        lines = [
            f"{self.name}, seed {self.seed}",
            *(f"  {line}" for line in self.log),
            json.dumps(self.measured),
            *found,
        ]
        return "\n".join(lines)


SCENARIOS: dict[str, Scenario] = {
    "killed": Scenario("redis", "postgresql", (kill_child, kill_node, kill_child, kill_relay, kill_child, kill_node)),
}


def new_seed() -> int:
    """The seed that ``GUARD_CHAOS_SEED`` names, or a new one."""
    return int(os.environ.get("GUARD_CHAOS_SEED") or random.SystemRandom().randrange(10**6))


def play(name: str, scenario: Scenario, folder: Path, seed: int, size: int) -> Report:
    """Publish and run ``size`` jobs under the scenario's faults, and check what is left."""
    plan = make_plan(seed, size, IN_TRANSACTIONS if scenario.store == "redis" else ())
    with open_stage(
        scenario.broker, scenario.store, folder, plan, private=scenario.private, wired=scenario.wired
    ) as stage:
        try:
            stage.start({}, {})
            stage.publisher.start()
            _break(stage, scenario.faults)
            healed = stage.now()
            stage.say("healed")
            stage.rest()
            history = stage.history(healed)
        finally:
            print(f"{name}: seed {seed}", *stage.log, sep="\n  ")
    return Report(name, seed, stage.log, check(history), measured(history), history)


def _break(stage: Stage, faults: Sequence[Fault]) -> None:
    """One fault after the other, when its share of the work is done; until all is published."""
    shares = sorted(stage.draw.uniform(0.05, 0.85) for _ in faults)
    for share, fault in zip(shares, faults, strict=True):
        _until(stage, share)
        fault(stage)
    stage.publisher.join()
    if stage.publisher.error is not None:
        raise stage.publisher.error


def _until(stage: Stage, share: float) -> None:
    before, since = -1, time.monotonic()
    while (returned := stage.returned()) < share * stage.plan.returns and time.monotonic() - since < _HANGING:
        if returned != before:
            before, since = returned, time.monotonic()
        stage.keep_up()
        time.sleep(_LOOK_EVERY)
