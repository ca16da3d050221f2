"""How fast messages reach the broker: a relay that finds them in PostgreSQL, beside a caller that sends one after the other."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .cost import Cost
from .lab import Kind, Lab
from .options import Options
from .rounds import compare

__all__ = ["relay"]


def relay(broker: str) -> Callable[[Lab, Options], dict[str, Any]]:
    """A relay on this broker: it takes, publishes and marks. On RabbitMQ it waits for confirms, and the plain loop does not."""

    def measure(lab: Lab, options: Options) -> dict[str, Any]:
        def cost(kind: Kind) -> Cost:
            with lab.side(kind, broker, "postgresql") as side:
                return side.cost("publish", options.jobs)

        return compare(
            options.rounds, lambda: cost("plain"), lambda: cost("guarded"), relay="measured", results="ignored"
        )

    return measure
