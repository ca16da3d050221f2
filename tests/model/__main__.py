"""``python -m tests.model``: what was looked at. With the name of a wrong variant, or ``all``: the shortest way to what it breaks."""

from __future__ import annotations

import sys
import time

from .checker import Result, explore
from .variants import DEEP, LOOKED_AT, VARIANTS
from .world import World


def _say(name: str, found: Result, since: float) -> None:
    took = time.process_time() - since
    print(f"{name}: {found.states} states, {found.steps} steps, {found.depth} deep, {took:.1f} s of CPU")
    if found.found is not None:
        print(found.found)


def main(words: list[str]) -> None:
    """Print it."""
    names = {word.upper() for word in words if not word.startswith("-")}
    for variant in VARIANTS:
        if names & {"ALL", variant.wrong.name}:
            since = time.process_time()
            _say(
                f"\n{variant.wrong.name} ({variant.wrong.value})", explore(World(variant.limits, variant.wrong)), since
            )
    if not names:
        for name, limits in (DEEP if "--deep" in words else LOOKED_AT).items():
            since = time.process_time()
            _say(name, explore(World(limits)), since)


main(sys.argv[1:])
