"""Which faults meet which stack, and how a scenario is played."""

from __future__ import annotations

import json
import os
import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from .checker import check, measured
from .clocks import shifted
from .faults import (
    Fault,
    cold_shutdown,
    cut_broker,
    cut_store,
    fill_disk,
    flush_broker,
    kill_child,
    kill_node,
    kill_publisher,
    kill_relay,
    lose_messages,
    pause_node,
    restart_broker,
    restart_store,
    silence_broker,
    silence_store,
    trouble_messages,
    warm_shutdown,
)
from .history import History
from .plan import IN_TRANSACTIONS, make_plan
from .publisher import Publisher
from .stage import Stage, open_stage

__all__ = ["SCENARIOS", "Report", "Scenario", "break_things", "new_seed", "play"]

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
    #: Servers of its own, to be killed; wires before them, to be cut; a small disk, to be filled.
    private: bool = False
    wired: bool = False
    small: bool = False
    #: A relay beside the nodes, and none in them.
    relay: bool = False
    #: How wrong the clock of each node is.
    shifts: tuple[str, ...] = ("", "")


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
    "children, nodes and relays are killed": Scenario(
        "redis",
        "postgresql",
        (
            kill_publisher,
            kill_child,
            kill_node,
            kill_publisher,
            kill_child,
            kill_relay,
            kill_child,
            kill_node,
            kill_relay,
        ),
    ),
    "nodes are paused past their leases": Scenario("rabbitmq", "postgresql", (pause_node, kill_child, pause_node)),
    "nodes are shut down, warm and cold": Scenario(
        "redis",
        "sqlite",
        (warm_shutdown, kill_publisher, cold_shutdown, kill_child, kill_publisher, cold_shutdown, warm_shutdown),
    ),
    "the broker is restarted and forgets everything": Scenario(
        "redis", "mariadb", (flush_broker, restart_broker, kill_node, flush_broker), relay=True
    ),
    "rabbitmq is restarted": Scenario("rabbitmq", "postgresql", (restart_broker, kill_relay), private=True),
    "the database is restarted": Scenario(
        "redis", "postgresql", (restart_store, kill_child, restart_store), private=True
    ),
    "messages are dropped, doubled and reordered": Scenario(
        "redis",
        "postgresql",
        (trouble_messages, trouble_messages, lose_messages, kill_child, trouble_messages, kill_relay),
        relay=True,
    ),
    "rabbitmq drops, doubles and reorders messages": Scenario(
        "rabbitmq",
        "mariadb",
        (kill_publisher, trouble_messages, kill_publisher, lose_messages, trouble_messages),
        relay=True,
    ),
    "the network to the database is cut": Scenario(
        "redis", "postgresql", (cut_store, silence_store, kill_child), wired=True
    ),
    "mariadb is cut off and restarted": Scenario(
        "redis", "mariadb", (cut_store, restart_store, silence_store), private=True, wired=True
    ),
    "the network to the broker is cut": Scenario("rabbitmq", "postgresql", (cut_broker, silence_broker), wired=True),
    "the disk is full": Scenario("files", "sqlite", (fill_disk, kill_child, fill_disk), small=True),
    "clocks disagree": Scenario("redis", "mariadb", (kill_child, kill_node), shifts=("+3600s", "-3600s")),
    "everything is on redis": Scenario(
        "redis",
        "redis",
        (kill_child, kill_node, cut_store, flush_broker, trouble_messages, kill_relay),
        wired=True,
        relay=True,
    ),
}


def new_seed() -> int:
    """The seed that ``GUARD_CHAOS_SEED`` names, or a new one."""
    return int(os.environ.get("GUARD_CHAOS_SEED") or random.SystemRandom().randrange(10**6))


def play(name: str, scenario: Scenario, folder: Path, seed: int, size: int) -> Report:
    """Publish and run ``size`` jobs under the scenario's faults, and check what is left."""
    joins = scenario.store != "redis"
    plan = make_plan(seed, size, () if joins else IN_TRANSACTIONS)
    with open_stage(
        scenario.broker, scenario.store, folder, seed, plan.returns, private=scenario.private, wired=scenario.wired,
        small=scenario.small,
    ) as stage:  # fmt: skip
        print(f"{name}: seed {seed}", flush=True)
        publisher = stage.publisher = Publisher(stage.fleet, plan, joins=joins)
        publisher.start()
        stage.start(*map(shifted, scenario.shifts), relay=scenario.relay)
        break_things(stage, scenario.faults, publisher.is_alive)
        healed = stage.now()
        stage.say("healed")
        stage.rest()
        history = stage.history(healed)
    return Report(name, seed, stage.log, check(history), measured(history), history)


def break_things(stage: Stage, faults: Sequence[Fault], publishes: Callable[[], bool]) -> None:
    """One fault after the other, each when its share of the work is done; then until all is published."""
    shares = sorted(stage.draw.uniform(0.05, 0.85) for _ in faults)
    for share, fault in zip(shares, faults, strict=True):
        _until(stage, share)
        fault(stage)
    while publishes():
        stage.keep_up()
        time.sleep(_LOOK_EVERY)


def _until(stage: Stage, share: float) -> None:
    before, since = -1, time.monotonic()
    while (returned := stage.returned()) < share * stage.returns and time.monotonic() - since < _HANGING:
        if returned != before:
            before, since = returned, time.monotonic()
        stage.keep_up()
        time.sleep(_LOOK_EVERY)
