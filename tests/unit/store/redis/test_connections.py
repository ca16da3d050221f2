"""The connections of a Redis store: how many there are, which is taken, and which is trusted."""

from __future__ import annotations

import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from importlib.util import find_spec
from typing import Any

import pytest
import redis

from celery_guard.store.redis import connections
from celery_guard.store.redis.connections import Connections


class Wire:
    """What a connection does, without a server."""

    made = 0

    def __init__(self, **options: Any) -> None:
        Wire.made += 1
        self.options = options
        self.closed = 0
        self.answer: bool | Exception = False

    def can_read(self, timeout: float) -> bool:
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer

    def disconnect(self) -> None:
        self.closed += 1


@pytest.fixture(autouse=True)
def nothing_made(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Wire, "made", 0)


@pytest.fixture
def few() -> Connections:
    return Connections({"connection_class": Wire, "db": 3}, most=2, timeout=0.01)


def test_none_is_made_before_it_is_needed_and_the_last_used_is_taken_first(few: Connections) -> None:
    assert Wire.made == 0
    one, other = few.take(), few.take()
    few.give_back(one)
    few.give_back(other)
    assert [few.take() for _ in range(2)] == [other, one]
    assert (Wire.made, one.connection.options) == (2, {"db": 3})


def test_who_finds_all_at_work_waits_and_is_told(few: Connections) -> None:
    one, other = few.take(), few.take()
    with pytest.raises(redis.ConnectionError, match="No connection available"):
        few.take()
    few.give_back(one)
    assert few.take() is one is not other


def test_one_that_cannot_be_made_takes_no_place(few: Connections, monkeypatch: pytest.MonkeyPatch) -> None:
    def failing(self: Wire, **_: Any) -> None:
        raise redis.ConnectionError("no place")

    with monkeypatch.context() as patched:
        patched.setattr(Wire, "__init__", failing)
        with pytest.raises(redis.ConnectionError, match="no place"):
            few.take()
        with pytest.raises(redis.ConnectionError, match="no place"):
            few.take()
    one, other = few.take(), few.take()
    assert one.connection is not other.connection


@pytest.mark.parametrize("answer", [True, redis.ConnectionError("gone"), OSError("gone")])
def test_one_that_is_not_good_after_a_rest_connects_anew(
    few: Connections, answer: bool | Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections, "_FRESH", -1.0)
    one = few.take()
    few.give_back(one)
    assert (few.take(), one.connection.closed) == (one, 0)
    one.connection.answer = answer
    few.give_back(one)
    assert (few.take(), one.connection.closed) == (one, 1)


def test_one_that_was_used_just_now_is_not_asked(few: Connections) -> None:
    one = few.take()
    one.connection.answer = True
    few.give_back(one)
    assert (few.take(), one.connection.closed) == (one, 0)


def test_all_are_closed(few: Connections) -> None:
    one, other = few.take(), few.take()
    few.give_back(one)
    few.close()
    assert (one.connection.closed, other.connection.closed) == (1, 1)


def test_a_place_that_was_lost_is_free_and_its_connection_closed(few: Connections) -> None:
    wires = [few.take().connection for _ in range(6)]
    assert Wire.made == 1
    assert {id(wire) for wire in wires} == {id(wires[0])}
    assert wires[0].closed == 6
    one, other = few.take(), few.take()
    with pytest.raises(redis.ConnectionError, match="No connection available"):
        few.take()
    assert one.connection is not other.connection


def test_one_with_an_answer_that_was_not_read_connects_anew(few: Connections) -> None:
    one = few.take()
    one.unread = True
    few.give_back(one)
    assert few.take() is one
    assert (one.connection.closed, one.unread) == (1, False)


def test_who_waits_is_woken_by_whoever_gives_back(few: Connections) -> None:
    few = Connections({"connection_class": Wire}, most=1, timeout=60)
    with ThreadPoolExecutor(4) as threads:

        def turn(_: int) -> int:
            place = few.take()
            time.sleep(0)
            few.give_back(place)
            return id(place)

        assert len(set(threads.map(turn, range(400)))) == 1


def test_those_of_nobody_are_closed() -> None:
    few = Connections({"connection_class": Wire}, most=2, timeout=0.01)
    place = few.take()
    wire = place.connection
    few.give_back(place)
    del place, few
    assert wire.closed == 1


GREENLETS = """
import eventlet
eventlet.monkey_patch()
from celery_guard.store.redis.connections import Connections

class Wire:
    def disconnect(self):
        pass

few = Connections({"connection_class": Wire}, most=1, timeout=20)
held = few.take()
second = eventlet.spawn(few.take)
eventlet.sleep(0)
few.give_back(held)
print(second.wait() is held)
"""


@pytest.mark.skipif(find_spec("eventlet") is None, reason="needs eventlet")
def test_a_greenlet_of_eventlets_that_waits_lets_the_others_go_on() -> None:
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", GREENLETS], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.stdout.strip() == "True", done.stderr
