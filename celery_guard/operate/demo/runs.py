"""One import, from its first row to its last; what differs between guarded and plain is in the modules of these names.

The file is accepted while no worker runs. Then the nodes start, and the kills follow as the work goes on: by how many rows are
done, not by the clock, so that a slow machine sees the same. It is over when nothing waits and nothing runs.
"""

from __future__ import annotations

import json
import random
import time
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from .nodes import Node, Nodes
from .plan import Kill, Plan
from .processes import environment, step
from .show import Progress
from .tally import Tally, add_up

__all__ = ["Clock", "Import", "Look"]

#: How often the demo looks (seconds).
_LOOK_EVERY = 0.1

#: Where the process of a row dies, in words.
_PLACES = {"before": "before it was written", "after": "after its body"}


@dataclass(frozen=True, slots=True)
class Clock:
    """How long the demo may take. Nothing is right or wrong because of it; it only ends what would never end."""

    until: float

    def left(self) -> float:
        """Seconds. Raises ``TimeoutError`` when there are none."""
        left = self.until - time.monotonic()
        if left <= 0:
            raise TimeoutError(
                "The demo took longer than its --timeout. On a slow machine give more time, or fewer --rows."
            )
        return left


@dataclass(frozen=True, slots=True)
class Look:
    """What is seen of an import while it runs."""

    done: int
    over: bool
    #: Changes whenever anything moves.
    trace: Hashable


class Import(ABC):
    """One column of the table. Subclasses say how the work is done, and how to see that it is over."""

    title: ClassVar[str]
    app: ClassVar[str]
    loader: ClassVar[str]
    settings: ClassVar[dict[str, str]] = {}
    #: How long nothing at all may move (seconds).
    patience: ClassVar[float] = 120

    def __init__(self, plan: Plan, folder: Path, nodes: int, clock: Clock, progress: Progress) -> None:
        self.plan = plan
        self.folder = folder
        self.clock = clock
        self.progress = progress
        self._nodes = nodes
        self._killed: Counter[str] = Counter()
        self._ended_alone = 0
        self._kills = [kill for kill in plan.kills if self.can_kill(kill)]
        # a text seeds the same in every process
        self._draw = random.Random(f"{plan.seed} {self.title}")
        self.environment = environment(folder, self.settings)

    def run(self) -> Tally:
        """Load the file, work it off under the faults, and count.

        Raises:
            TimeoutError: it did not end.
            RuntimeError: a step failed.
        """
        began = time.monotonic()
        self.plan.write(self.folder)
        with self.progress.of(self.title, len(self.plan.rows)):
            self.load()
            self._work_off()
        return self._tally(time.monotonic() - began)

    def load(self) -> None:
        """Accept the file."""
        self.step("load", self.loader, self.file)
        self.progress.say(f"{len(self.plan.rows)} rows are accepted, and no worker runs yet")

    @property
    def file(self) -> str:
        """The file to import."""
        return str(self.folder / "airports.csv")

    def step(self, *arguments: str) -> str:
        """Run a step in a process of its own; what it printed."""
        return step(arguments, self.folder, self.environment, self.clock.left())

    @abstractmethod
    def look(self) -> Look:
        """See how far it is."""

    def can_kill(self, kill: Kill) -> bool:
        """Whether there is such a thing to kill."""
        return True

    def relays(self) -> Sequence[int]:
        """The relays' processes."""
        return ()

    def jobs(self) -> tuple[int, list[str]] | None:
        """How many jobs there are, and the rows of those that are dead letters."""
        return None

    def _work_off(self) -> None:
        while True:
            with Nodes(self._nodes, self._start, self.relays) as nodes:
                try:
                    self._watch(nodes)
                    nodes.stop()
                finally:
                    self._ended_alone += nodes.ended_alone
            if self.look().over:
                return

    def _start(self, name: str) -> Node:
        return Node(name, self.app, self.environment, self.folder)

    def _watch(self, nodes: Nodes) -> None:
        """Until it is over: report, kill, and start again what has ended."""
        trace: Hashable = None
        moved = time.monotonic()
        while not (look := self.look()).over:
            self.clock.left()
            self.progress.at(look.done)
            for name in nodes.keep_up():
                self.progress.say(f"{name} has ended by itself, and is started again")
            self._kill(nodes, look.done / len(self.plan.rows))
            self._tell_deaths()
            if look.trace != trace:
                trace, moved = look.trace, time.monotonic()
            elif time.monotonic() - moved > self.patience:
                self.stalled(look)
                return
            time.sleep(_LOOK_EVERY)
        self.progress.at(look.done)

    def stalled(self, look: Look) -> None:
        """Nothing moves any more."""
        raise TimeoutError(
            f"{self.title}: nothing has moved for {self.patience:g} s; {look.done} of {len(self.plan.rows)} rows are done. "
            "The workers' logs say why."
        )

    def _kill(self, nodes: Nodes, done: float) -> None:
        """Send one kill whose time has come. What there is to kill may be missing for a moment: then the next one's turn is now."""
        for kill in [kill for kill in self._kills if kill.at <= done]:
            killed = nodes.kill(kill.kind, self._draw)
            if killed is not None:
                self._kills.remove(kill)
                self._killed[kill.kind] += 1
                self.progress.say(f"killed {killed}")
                return

    def _tell_deaths(self) -> None:
        for iata in self._noted("killed")[self._killed["row"] :]:
            self._killed["row"] += 1
            self.progress.say(f"killed the process that ran {iata}, {_PLACES[self.plan.deadly[iata]]}")

    def _tally(self, seconds: float) -> Tally:
        counted = json.loads(self.step("count"))
        self._tell_deaths()
        jobs, dead = self.jobs() or (None, None)
        return add_up(
            self.title, self.plan, batches=counted["batches"], airports=[tuple(row) for row in counted["airports"]], jobs=jobs,
            dead=dead, kills=self._killed, delivered_twice=len(self._noted("twice")), failed_for_a_while=len(self._noted("failed")),
            ended_alone=self._ended_alone, seconds=seconds,
        )  # fmt: skip

    def _noted(self, what: str) -> list[str]:
        """What the faults have noted so far."""
        path = self.folder / f"{what}.notes"
        return path.read_text().splitlines() if path.exists() else []
