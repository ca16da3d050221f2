"""When those who bring jobs to their end could act: a worker came up, a relay had a turn. A line each, by the machine's clock, in a file."""

from __future__ import annotations

import os
import time
from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path

__all__ = ["Moment", "Turns", "took_turn", "turns_in"]


def took_turn(file: Path, who: str) -> None:
    """Note that this process, a ``worker`` or a ``relay``, could act."""
    descriptor = os.open(file, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    try:
        os.write(descriptor, f"{who} {os.getpid()} {time.monotonic()}\n".encode())
    finally:
        os.close(descriptor)


@dataclass(frozen=True, slots=True)
class Moment:
    """The same moment by the store's clock and by the machine's."""

    store: datetime
    machine: float

    def at(self, machine: float) -> datetime:
        """What the store's clock said when the machine's said this."""
        return self.store + timedelta(seconds=machine - self.machine)


@dataclass(frozen=True, slots=True)
class Turns:
    """By the store's clock, in order of time."""

    #: When the first of the workers that lived to the end had come up; None where none had.
    ready: datetime | None
    #: The turns of each relay.
    relays: Mapping[int, Sequence[datetime]] = field(default_factory=dict)

    def between(self, before: datetime, after: datetime) -> int:
        """How many turns the relay had that had the most of them."""
        return max(
            (bisect_left(turns, after) - bisect_right(turns, before) for turns in self.relays.values()), default=0
        )


def turns_in(file: Path, known: Moment, workers: Collection[int]) -> Turns:
    """What the file says from the known moment on; ``workers`` are those that lived to the end."""
    ready: list[datetime] = []
    relays: defaultdict[int, list[datetime]] = defaultdict(list)
    for line in file.read_text().splitlines() if file.exists() else ():
        who, pid, machine = line.split()
        if who == "relay" and float(machine) > known.machine:
            relays[int(pid)].append(known.at(float(machine)))
        elif who == "worker" and int(pid) in workers:
            ready.append(known.at(float(machine)))
    return Turns(min(ready, default=None), relays)
