"""Whether a worker and its relay grow while they work."""

from __future__ import annotations

from typing import Any

import psutil

from .lab import Lab
from .options import Options

__all__ = ["growth"]

_LOOKS = 10
#: Until so many looks are over, caches fill and connections are made.
_WARM = 2


def growth(lab: Lab, options: Options) -> dict[str, Any]:
    """The memory (RSS) of each process at the end, by what it was after a fifth of the jobs; the worst of them counts."""
    jobs = options.memory_jobs
    with lab.side("guarded", "redis", "postgresql") as side:
        side.inside("rows", jobs)
        tally = side.tally()
        looks: list[dict[int, int]] = []
        with side.worker(relay=True) as worker:
            for look in range(1, _LOOKS + 1):
                side.wait(worker, tally, jobs * look // _LOOKS)
                family = [psutil.Process(worker.pid), *psutil.Process(worker.pid).children(recursive=True)]
                looks.append({process.pid: process.memory_info().rss for process in family})
    kept = [pid for pid in looks[_WARM - 1] if pid in looks[-1]]
    ratios = [looks[-1][pid] / looks[_WARM - 1][pid] for pid in kept]
    return {
        "ratio": max(ratios),
        "processes": [{"mib": [round(look.get(pid, 0) / 2**20, 1) for look in looks]} for pid in kept],
        "jobs": jobs,
        "relay": "in the worker",
        "results": "ignored",
    }
