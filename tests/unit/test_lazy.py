"""A value that is worked out once."""

from __future__ import annotations

import multiprocessing
import os
import threading
import warnings

import pytest

from celery_guard.lazy import lazy


class Slow:
    """Works its value out when it is let."""

    def __init__(self, value: object) -> None:
        self.begun, self.let = threading.Event(), threading.Event()
        self._value = value

    @lazy
    def value(self) -> object:
        """What it was made with."""
        self.begun.set()
        assert self.let.wait(30)
        return self._value


def test_a_value_is_worked_out_once_and_for_each_object() -> None:
    one, other = Slow([]), Slow([])
    one.let.set()
    other.let.set()
    assert one.value is one.value
    assert one.value is not other.value
    assert Slow.value.__doc__ == "What it was made with."


def test_of_two_threads_that_work_it_out_the_first_ones_value_is_everybodys() -> None:
    class Racing:
        def __init__(self) -> None:
            self.both = threading.Barrier(2)

        @lazy
        def value(self) -> object:
            self.both.wait(30)
            return object()

    racing, seen = Racing(), []
    threads = [threading.Thread(target=lambda: seen.append(racing.value)) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert seen[0] is seen[1] is racing.value


@pytest.mark.skipif(not hasattr(os, "fork"), reason="nothing forks here")
def test_a_process_that_is_forked_while_a_thread_works_a_value_out_waits_for_nobody() -> None:
    """A worker's children did, on Python before 3.12, when their parent's relay was just opening the store."""
    held, other = Slow(1), Slow(0)
    thread = threading.Thread(target=lambda: held.value)
    thread.start()
    assert held.begun.wait(30)
    other.let.set()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        child = multiprocessing.get_context("fork").Process(target=lambda: os._exit(int(str(other.value))))
        child.start()
    child.join(20)
    ended = child.exitcode
    child.kill()
    held.let.set()
    thread.join(30)
    assert ended == 0
