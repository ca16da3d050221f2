"""What is measured in a process of its own: ``python -m benchmarks.inside delay 1000`` prints its cost as JSON.

The app, its broker and its store come from the environment, as :mod:`benchmarks.lab` sets it.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from typing import Any

from .app import GUARDED, app, guard, nothing

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
    named: dict[str, Callable[..., Any]] = {each.__name__: each for each in (drop, fill, rows, delay, many, publish)}
    print(json.dumps(named[sys.argv[1]](*map(int, sys.argv[2:]))))
