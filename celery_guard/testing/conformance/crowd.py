"""Many at once: threads that are let go together, and processes that share nothing but the database."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from multiprocessing.synchronize import Barrier as ProcessBarrier
from threading import Barrier
from typing import Any, TypeVar

from .subject import Subject

__all__ = ["processes", "together"]

T = TypeVar("T")

#: Above what starting a few interpreters takes on a busy machine; only reached by a test that fails.
PATIENCE = 60.0


def together(count: int, work: Callable[[int], T]) -> list[T]:
    """Run ``work(0)`` to ``work(count - 1)`` in threads that start at one moment; answers in that order."""
    gate = Barrier(count)

    def go(number: int) -> T:
        gate.wait(PATIENCE)
        return work(number)

    with ThreadPoolExecutor(count) as pool:
        return list(pool.map(go, range(count), timeout=PATIENCE))


def processes(
    count: int, work: Callable[[Subject, ProcessBarrier, int, Any], T], subject: Subject, given: Any
) -> list[T]:
    """Run a module-level ``work(subject, barrier, number, given)`` in new interpreters; answers in that order."""
    context = multiprocessing.get_context("spawn")
    with context.Manager() as manager:
        barrier = manager.Barrier(count)
        with context.Pool(count) as pool:
            waiting = [pool.apply_async(work, (subject, barrier, number, given)) for number in range(count)]
            return [answer.get(PATIENCE) for answer in waiting]
