"""What goes wrong, each as one function of the stage: it breaks something, lets leases lapse where that is the point, and heals it again."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from .messages import Trouble, trouble, waiting
from .publisher import doubts
from .stage import LEASE, Stage, signalled

__all__ = [
    "Fault", "cold_shutdown", "cut_broker", "cut_store", "fill_disk", "flush_broker", "kill_child", "kill_node", "kill_publisher",
    "kill_relay", "lose_messages", "pause_node", "restart_broker", "restart_store", "silence_broker", "silence_store", "trouble_messages",
    "warm_shutdown",
]  # fmt: skip

Fault = Callable[[Stage], None]

#: Messages that are waited for before something happens to them; for as long as leases last, at most.
_PILE = 30

#: How often it is looked whether the publisher is in the middle of a step, which takes about so many seconds.
_LOOKS = 3000
_STEP = 0.01


# -- processes --------------------------------------------------------------------------------------------------------


def kill_child(stage: Stage) -> None:
    """SIGKILL for a process of a pool."""
    _kill(stage, "child", stage.children())


def kill_relay(stage: Stage) -> None:
    """SIGKILL for a relay."""
    _kill(stage, "relay", stage.relays())


def _kill(stage: Stage, what: str, found: list[int]) -> None:
    if found:
        pid = stage.draw.choice(found)
        if signalled(pid, signal.SIGKILL):
            stage.say(f"killed {what} {pid}")


def kill_node(stage: Stage) -> None:
    """SIGKILL for a node, with its children and its relay."""
    place = stage.draw.randrange(len(stage.nodes))
    stage.nodes[place].kill()
    stage.say(f"killed node {place}")
    stage.replace(place)


def kill_publisher(stage: Stage) -> None:
    """SIGKILL for the publisher in the middle of a step; another one goes on where its notes end."""
    publisher = stage.publisher
    assert publisher is not None
    for _ in range(_LOOKS):
        if not publisher.is_alive() or publisher.is_asking():
            break
        time.sleep(0.001)
    time.sleep(stage.draw.uniform(0, _STEP))
    if not publisher.is_alive():
        stage.say("the publisher has nothing more to do")
        return
    sight = publisher.kill()
    stage.say(f"killed the publisher {sight.when}; {doubts(sight) or 'nothing'} in doubt")
    publisher.start()


def pause_node(stage: Stage) -> None:
    """SIGSTOP for a node, for longer than its leases and its hold of what it relays; then it goes on as if nothing had been."""
    place = stage.draw.randrange(len(stage.nodes))
    node = stage.nodes[place]
    node.pause()
    stage.say(f"paused node {place}")
    _leases(2)
    node.resume()
    stage.say(f"node {place} goes on")


def warm_shutdown(stage: Stage) -> None:
    """SIGTERM for a node, as in a roll-out; another one comes in its place."""
    _stop(stage, signal.SIGTERM)


def cold_shutdown(stage: Stage) -> None:
    """SIGQUIT for a node: its bodies are not waited for."""
    _stop(stage, signal.SIGQUIT)


def _stop(stage: Stage, number: signal.Signals) -> None:
    place = stage.draw.randrange(len(stage.nodes))
    node = stage.nodes[place]
    signalled(node.process.pid, number)
    stage.say(f"{number.name} for node {place}")
    stage.leaving.append(node)
    stage.replace(place)


# -- servers ----------------------------------------------------------------------------------------------------------


def restart_broker(stage: Stage) -> None:
    """SIGKILL for the broker, which comes back after a while with what it had written down."""
    _restart(stage, "broker")


def restart_store(stage: Stage) -> None:
    """SIGKILL for the database, which comes back after a while and recovers what was committed."""
    _restart(stage, "store")


def _restart(stage: Stage, which: str) -> None:
    server = (stage.stack.broker if which == "broker" else stage.stack.store).server
    assert server is not None
    server.kill()
    stage.say(f"killed the {which}")
    _leases(1)
    server.start()
    stage.say(f"the {which} is back")


def flush_broker(stage: Stage) -> None:
    """FLUSHALL on the Redis broker: every message is gone, and nobody is told."""
    import redis

    assert stage.stack.broker.kind == "redis"
    with _piling_up(stage) as left, redis.Redis.from_url(stage.stack.broker.url) as client:
        client.flushall()
    stage.say(f"flushed the broker, with {left} messages")


# -- messages ---------------------------------------------------------------------------------------------------------


def trouble_messages(stage: Stage) -> None:
    """Of the messages that wait, some are dropped, some are doubled, and all come in another order."""
    _trouble(stage, Trouble(dropped=0.2, doubled=0.4))


def lose_messages(stage: Stage) -> None:
    """Most of the messages that wait are dropped."""
    _trouble(stage, Trouble(dropped=0.8, doubled=0.0))


def _trouble(stage: Stage, how: Trouble) -> None:
    with _piling_up(stage):
        stage.say(f"messages: {trouble(stage.fleet.app.app, stage.fleet.queue, how, stage.draw)}")


@contextmanager
def _piling_up(stage: Stage) -> Iterator[int]:
    """Nodes do nothing for a moment, so that messages wait in the queue; how many. Somebody else has to publish."""
    for node in stage.nodes:
        node.pause()
    found = 0
    try:
        for _ in range(40):
            if (found := waiting(stage.fleet.app.app, stage.fleet.queue)) >= _PILE:
                break
            time.sleep(0.05)
        yield found
    finally:
        for node in stage.nodes:
            node.resume()


# -- the network ------------------------------------------------------------------------------------------------------


def cut_store(stage: Stage) -> None:
    """Between the workers and the database: connections end, and none is taken for a while."""
    _cut(stage, "store", silently=False)


def cut_broker(stage: Stage) -> None:
    """The same between the workers and the broker."""
    _cut(stage, "broker", silently=False)


def silence_store(stage: Stage) -> None:
    """Between the workers and the database: connections stay, and nothing arrives for a while."""
    _cut(stage, "store", silently=True)


def silence_broker(stage: Stage) -> None:
    """The same between the workers and the broker."""
    _cut(stage, "broker", silently=True)


def _cut(stage: Stage, which: str, *, silently: bool) -> None:
    wire = (stage.stack.broker if which == "broker" else stage.stack.store).wire
    assert wire is not None
    if silently:
        wire.swallow()
    else:
        wire.sever()
    stage.say(f"the {which} is {'silent' if silently else 'cut off'}")
    _leases(1.5)
    wire.restore()
    stage.say(f"the {which} can be reached again")


# -- the disk ---------------------------------------------------------------------------------------------------------


def fill_disk(stage: Stage) -> None:
    """Nothing is left on the disk of the database, for a while."""
    assert stage.disk is not None
    ballast = stage.disk / "ballast"
    with ballast.open("wb", buffering=0) as file:
        try:
            while True:
                file.write(bytes(4096))
        except OSError as full:
            stage.say(f"the disk is full: {full}")
    _leases(1)
    os.unlink(ballast)
    stage.say("there is room again")


def _leases(count: float) -> None:
    """Let leases lapse."""
    time.sleep(count * LEASE.total_seconds())
