"""What goes wrong, each as one function of the stage: it breaks something, waits where it has to, and heals it again."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable

from .stage import LEASE, Stage, signalled

__all__ = ["Fault", "kill_child", "kill_node", "kill_relay"]

Fault = Callable[[Stage], None]


def kill_child(stage: Stage) -> None:
    """SIGKILL for a process of a pool."""
    found = stage.children()
    if found:
        pid = stage.draw.choice(found)
        if signalled(pid, signal.SIGKILL):
            stage.say(f"killed child {pid}")


def kill_node(stage: Stage) -> None:
    """SIGKILL for a node, with its children and its relay."""
    place = stage.draw.randrange(len(stage.nodes))
    stage.nodes[place].kill()
    stage.say(f"killed node {place}")
    stage.replace(place)


def kill_relay(stage: Stage) -> None:
    """SIGKILL for a relay."""
    found = stage.relays()
    if found:
        pid = stage.draw.choice(found)
        if signalled(pid, signal.SIGKILL):
            stage.say(f"killed relay {pid}")


def _leases(count: float) -> None:
    """Let leases lapse."""
    time.sleep(count * LEASE.total_seconds())
