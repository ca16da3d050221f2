"""What a caller pays for a job. Plain sends to Redis, guarded writes to PostgreSQL; nobody consumes meanwhile, and no relay runs."""

from __future__ import annotations

from typing import Any

from .cost import Cost
from .lab import Kind, Lab
from .options import Options
from .rounds import compare

__all__ = ["delay", "many"]

MANY = 10_000


def delay(lab: Lab, options: Options) -> dict[str, Any]:
    """One job after the other, each committed by itself."""
    return _compare(lab, options, "delay", options.jobs)


def many(lab: Lab, options: Options) -> dict[str, Any]:
    """10,000 jobs in one transaction."""
    return _compare(lab, options, "many", min(MANY, 2 * options.jobs))


def _compare(lab: Lab, options: Options, what: str, jobs: int) -> dict[str, Any]:
    def cost(kind: Kind) -> Cost:
        with lab.side(kind, "redis", "postgresql") as side:
            return side.cost(what, jobs)

    return compare(options.rounds, lambda: cost("plain"), lambda: cost("guarded"), relay="not run", results="ignored")
