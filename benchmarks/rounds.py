"""Rounds: plain and guarded in turn, so that what else happens on the machine strikes both."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

from .cost import Cost, Pair, ratio

__all__ = ["compare"]


def compare(rounds: int, plain: Callable[[], Cost], guarded: Callable[[], Cost], **conditions: Any) -> dict[str, Any]:
    """A figure's part of the report. Every other round begins with the other side."""
    pairs = []
    for number in range(rounds):
        if number % 2:
            second = guarded()
            pair = Pair(plain(), second)
        else:
            pair = Pair(plain(), guarded())
        pairs.append(pair)
        print(f"    round {number + 1}: {ratio([pair], 'wall'):.2f} (CPU {ratio([pair], 'cpu'):.2f})", file=sys.stderr)
    return {
        "ratio": ratio(pairs, "wall"),
        "cpu_ratio": ratio(pairs, "cpu"),
        "rounds": [{"plain": pair.plain.as_json(), "guarded": pair.guarded.as_json()} for pair in pairs],
        **conditions,
    }
