"""How many jobs a worker gets through. They wait in the broker when it starts, so the broker is never empty and the relay has rested."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .cost import Cost
from .lab import Kind, Lab
from .options import Options
from .rounds import compare

__all__ = ["worker"]


def worker(broker: str, store: str) -> Callable[[Lab, Options], dict[str, Any]]:
    """A worker without a relay on this broker and this store."""

    def measure(lab: Lab, options: Options) -> dict[str, Any]:
        def drain(kind: Kind) -> Cost:
            with lab.side(kind, broker, store) as side:
                side.inside("fill", options.jobs)
                return side.drain(options.jobs, relay=False)

        return compare(
            options.rounds,
            lambda: drain("plain"),
            lambda: drain("guarded"),
            relay="published before, at rest",
            results="ignored",
        )

    return measure
