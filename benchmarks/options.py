"""What a run is asked for."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["SMOKE", "Options"]


@dataclass(frozen=True, slots=True)
class Options:
    """How much is measured."""

    rounds: int = 5
    #: Jobs of a round on each side.
    jobs: int = 5_000
    #: Jobs of a round that an idle worker is given.
    pickups: int = 100
    #: Rows of finished jobs in the table that is full.
    finished: int = 5_000_000
    #: Jobs over which memory has to stay flat.
    memory_jobs: int = 50_000


#: So few that the numbers mean nothing.
SMOKE = Options(rounds=1, jobs=40, pickups=5, finished=500, memory_jobs=200)
