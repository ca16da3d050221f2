"""How long a job waits for a worker that has nothing to do: from before ``.delay()`` to the first line of its body."""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import ExitStack
from statistics import median, quantiles
from typing import Any

from .lab import Kind, Lab
from .options import Options

__all__ = ["idle"]


def idle(store: str) -> Callable[[Lab, Options], dict[str, Any]]:
    """Both workers run all the time, and are given jobs in turn; the guarded one has the relay in it."""

    def measure(lab: Lab, options: Options) -> dict[str, Any]:
        count, rounds = options.pickups, []
        with ExitStack() as stack:
            sides = [stack.enter_context(lab.side(kind, "redis", store)) for kind in _KINDS]
            tallies = [side.tally(count * options.rounds) for side in sides]
            workers = [stack.enter_context(side.worker(relay=True)) for side in sides]
            for number in range(options.rounds):
                found: dict[str, dict[str, float]] = {}
                for side, tally, worker in zip(sides, tallies, workers, strict=True):
                    first = number * count
                    sent = side.inside("paced", first, count)
                    side.wait(worker, tally, first + count)
                    waits = [(tally.beginning(first + place) - at) / 1e9 for place, at in enumerate(sent)]
                    found[side.kind] = {"p50": median(waits), "p95": quantiles(waits, n=20, method="inclusive")[-1]}
                rounds.append(found)
                print(f"    round {number + 1}: {_ratio(found):.2f}", file=sys.stderr)
        return {
            "ratio": median(map(_ratio, rounds)), "rounds": rounds, "relay": "in the guarded worker", "results": "ignored",
        }  # fmt: skip

    return measure


_KINDS: tuple[Kind, Kind] = ("plain", "guarded")


def _ratio(found: dict[str, dict[str, float]]) -> float:
    return found["guarded"]["p95"] / found["plain"]["p95"]
