"""How many jobs a worker gets through. They wait in the broker when it starts, so the broker is never empty and the relay has rested."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .bare import prepare
from .cost import Cost
from .lab import Kind, Lab
from .options import Options
from .rounds import compare

__all__ = ["asking", "waiting", "worker"]

#: How long a body waits that does: as long as one that asks a database or an API that is near.
WAIT = 0.005

#: A moment that two children together spend in less time than the main process needs for their jobs, so that it limits nothing.
MOMENT = 0.001


def worker(broker: str, store: str, wait: float = 0) -> Callable[[Lab, Options], dict[str, Any]]:
    """A worker without a relay on this broker and this store; each body waits so many seconds."""

    def measure(lab: Lab, options: Options) -> dict[str, Any]:
        return compare(
            options.rounds,
            lambda: _drained(lab, options, "plain", broker, store, wait),
            lambda: _drained(lab, options, "guarded", broker, store, wait),
            relay="published before, at rest",
            results="ignored",
        )

    return measure


def waiting(lab: Lab, options: Options) -> dict[str, Any]:
    """Plain Celery beside itself: what its worker pays once a body takes a moment. Here "guarded" is that one, and plain too."""
    return compare(
        options.rounds,
        lambda: _drained(lab, options, "plain", "redis", "redis", 0),
        lambda: _drained(lab, options, "plain", "redis", "redis", MOMENT),
        relay="none",
        results="ignored",
    )


def asking(broker: str, store: str) -> Callable[[Lab, Options], dict[str, Any]]:
    """Plain Celery beside itself: what its worker pays for bodies that write to a store twice. Here "guarded" is that one, and plain too."""

    def measure(lab: Lab, options: Options) -> dict[str, Any]:
        return compare(
            options.rounds,
            lambda: _drained(lab, options, "plain", broker, store, 0),
            lambda: _drained(lab, options, "plain", broker, store, 0, asks=True),
            relay="none",
            results="ignored",
        )

    return measure


def _drained(
    lab: Lab, options: Options, kind: Kind, broker: str, store: str, wait: float, *, asks: bool = False
) -> Cost:
    with lab.side(kind, broker, store) as side:
        side.inside("fill", options.jobs)
        if asks:
            prepare(side.store_url)
        asked = side.store_url if asks else ""
        return side.with_(BENCH_WAIT=str(wait), BENCH_ASKS=asked).drain(options.jobs, relay=False)
