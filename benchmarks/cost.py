"""What something has cost: seconds on the clock, and seconds of CPU of the processes that did it."""

from __future__ import annotations

import time
from dataclasses import asdict, dataclass
from statistics import median
from typing import Any

import psutil

__all__ = ["Cost", "Pair", "Stopwatch", "ratio"]


@dataclass(frozen=True, slots=True)
class Cost:
    """Of so many jobs."""

    jobs: int
    #: Seconds on the clock.
    wall: float
    #: Seconds of CPU, user and system; of our own processes, not of the servers.
    cpu: float

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True, slots=True)
class Pair:
    """One round: the same work, plain and guarded."""

    plain: Cost
    guarded: Cost


def ratio(pairs: list[Pair], of: str) -> float:
    """How much faster (above 1) or slower the guarded side was: the median over the rounds, ``of`` "wall" or "cpu"."""
    ratios: list[float] = [
        (getattr(pair.plain, of) / pair.plain.jobs) / (getattr(pair.guarded, of) / pair.guarded.jobs) for pair in pairs
    ]
    return median(ratios)


class Stopwatch:
    """Started on a process and all that descend from it."""

    def __init__(self, pid: int, done: int = 0) -> None:
        self._family = _family(pid)
        self._done = done
        self._cpu = _cpu(self._family)
        self._wall = time.monotonic()

    def stop(self, done: int) -> Cost:
        """What ``done`` jobs, less those that were done at the start, have cost."""
        wall = time.monotonic() - self._wall
        return Cost(done - self._done, wall, _cpu(self._family) - self._cpu)


def _family(pid: int) -> list[psutil.Process]:
    process = psutil.Process(pid)
    return [process, *process.children(recursive=True)]


def _cpu(family: list[psutil.Process]) -> float:
    times = [process.cpu_times() for process in family]
    return float(sum(each.user + each.system for each in times))
