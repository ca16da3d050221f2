"""The relay beside a worker and in the foreground: started again, stopped by a signal, not held up by a broker that says nothing."""

from __future__ import annotations

import signal
import socket
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from celery import Celery

from celery_guard.integrations.celery import publisher, relay

PATIENCE = 30.0


class Fragile:
    """A relay that dies in its first life, and in its second one waits to be stopped."""

    def __init__(self) -> None:
        self.lives = 0
        self.well = threading.Event()

    def run(self, stop: threading.Event) -> None:
        self.lives += 1
        if self.lives == 1:
            raise RuntimeError("as any bug may")
        self.well.set()
        stop.wait(PATIENCE)


class Runtime:
    """As much of one as it takes to look after a relay."""

    def __init__(self) -> None:
        self.settings = self
        self.drain = self

    def total_seconds(self) -> float:
        return PATIENCE


def test_a_relay_in_a_thread_that_dies_is_started_again(monkeypatch: pytest.MonkeyPatch) -> None:
    fragile = Fragile()
    monkeypatch.setattr(relay, "make_relay", lambda runtime: fragile)
    beside = relay._Beside(Runtime(), forks=False)  # type: ignore[arg-type]
    beside.start()
    assert fragile.well.wait(PATIENCE)
    beside.stop()
    assert not beside.is_alive()
    assert fragile.lives == 2


@pytest.fixture
def handled() -> Iterator[int]:
    """A signal whose handler may be changed."""
    number = signal.SIGUSR2
    before = signal.getsignal(number)
    yield number
    signal.signal(number, before)


def test_a_signal_that_interrupts_the_wait_for_it_is_no_deadlock(handled: int) -> None:
    """The handler runs between two bytecodes of this thread, and these may hold the event's own lock."""
    stop = threading.Event()
    relay._stop_at([handled], stop)
    with stop._cond:  # type: ignore[attr-defined]
        signal.raise_signal(handled)
    assert stop.wait(PATIENCE)


def test_a_broker_that_takes_connections_and_says_nothing_is_out(monkeypatch: pytest.MonkeyPatch) -> None:
    short = {driver: dict.fromkeys(options, 0.1) for driver, options in publisher._SILENCE.items()}
    monkeypatch.setattr(publisher, "_SILENCE", short)
    row: Any = None
    with socket.create_server(("127.0.0.1", 0)) as silent:
        app = Celery("silent", broker=f"redis://127.0.0.1:{silent.getsockname()[1]}/0")
        published = publisher.BrokerPublisher(app).publish([row])
    assert published.outage is not None
    assert not published.refused
