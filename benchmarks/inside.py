"""What is measured in a process of its own: ``python -m benchmarks.inside delay 1000`` prints its cost as JSON.

The app, its broker and its store come from the environment, as :mod:`benchmarks.lab` sets it.
"""

from __future__ import annotations

import json
import random
import sys
import time
from collections.abc import Callable
from typing import Any

from .app import GUARDED, app, begin, guard, nothing

#: Calls before the measuring starts: connections are made, statements compiled.
_WARM = 50


def drop() -> None:
    """Delete the queue."""
    with app.connection_for_write() as connection:
        connection.default_channel.queue_delete(app.conf.task_default_queue)


def fill(jobs: int) -> None:
    """Have so many jobs wait in the broker."""
    if guard is None:
        _loop(jobs)
        return
    _rows(jobs)
    guard.relay().drain()


def loop(jobs: int) -> None:
    """So many jobs, one after the other."""
    _loop(jobs)


def rows(jobs: int) -> None:
    """Have so many jobs wait in the store for a relay."""
    _rows(jobs)


def delay(jobs: int) -> dict[str, Any]:
    """``.delay()``, one after the other: plain to the broker, guarded each in a transaction of its own."""
    _loop(_WARM)
    return _cost(jobs, lambda: _loop(jobs))


def many(jobs: int) -> dict[str, Any]:
    """So many jobs at once: plain a loop of ``.delay()``, guarded one ``enqueue_many``."""
    _loop(_WARM)
    return _cost(jobs, lambda: _rows(jobs) if GUARDED else _loop(jobs))


def publish(jobs: int) -> dict[str, Any]:
    """So many messages to the broker: plain a loop of ``apply_async``, guarded a relay that finds them in the store."""
    if guard is None:
        _loop(_WARM)
        return _cost(jobs, lambda: _loop(jobs))
    relay = guard.relay()
    _rows(_WARM)
    relay.drain()
    _rows(jobs)
    return _cost(jobs, relay.drain)


def relay() -> None:
    """Publish all that is due."""
    assert guard is not None
    guard.relay().drain()


def size() -> int:
    """How many bytes a message has, as it lies in the broker."""
    with app.connection_for_write() as connection:
        _loop(1)
        if guard is not None:
            guard.relay().drain()
        queue = connection.SimpleQueue(app.conf.task_default_queue)
        message = queue.get(timeout=30)
        message.ack()
        return len(message.body) + len(json.dumps(message.headers)) + len(json.dumps(message.properties))


def paced(first: int, jobs: int) -> list[int]:
    """Send so many jobs with pauses in which a worker comes to rest; when each was sent, in nanoseconds of the monotonic clock."""
    draw = random.Random(first)
    _touch()
    sent = []
    for number in range(first, first + jobs):
        time.sleep(draw.uniform(0.05, 0.15))
        sent.append(time.monotonic_ns())
        begin.apply_async((number,))
    return sent


def _touch() -> None:
    """Make the connections: the first job is not to pay for them."""
    if guard is not None:
        guard.store.counts()
        return
    with app.producer_or_acquire() as producer:
        producer.connection.ensure_connection()


def _loop(jobs: int) -> None:
    for number in range(jobs):
        nothing.apply_async((number,))


def _rows(jobs: int) -> None:
    nothing.enqueue_many([{"number": number} for number in range(jobs)])


def _cost(jobs: int, work: Callable[[], object]) -> dict[str, Any]:
    cpu, wall = time.process_time(), time.perf_counter()
    work()
    return {"jobs": jobs, "wall": time.perf_counter() - wall, "cpu": time.process_time() - cpu}


if __name__ == "__main__":
    named: dict[str, Callable[..., Any]] = {
        each.__name__: each for each in (drop, fill, loop, rows, relay, size, delay, many, publish, paced)
    }
    print(json.dumps(named[sys.argv[1]](*map(int, sys.argv[2:]))))
