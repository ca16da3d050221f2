"""The soft limit's signal is blocked while a job is claimed and settled, and at no other time, whatever is raised meanwhile."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from billiard.exceptions import SoftTimeLimitExceeded

from celery_guard.integrations.celery import limits
from celery_guard.integrations.celery.limits import soft_limit_allowed, soft_limit_deferred


class Struck(Exception):
    """What the pool's handler raises."""


@pytest.fixture(autouse=True)
def _handled() -> Iterator[None]:
    def strike(*_: Any) -> None:
        raise Struck

    before = signal.signal(signal.SIGUSR1, strike)
    try:
        yield
    finally:
        limits._deferred = False
        signal.signal(signal.SIGUSR1, signal.SIG_IGN)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGUSR1})
        signal.signal(signal.SIGUSR1, before)


@pytest.fixture
def raises_once(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], None]:
    """Have the next such change of the mask be made and raise, as where a signal came just before it."""
    plain = signal.pthread_sigmask

    def arrange(how: int) -> None:
        waits = [how]

        def change(asked: int, signals: Any) -> Any:
            before = plain(asked, signals)
            if asked in waits:
                waits.clear()
                raise Struck
            return before

        monkeypatch.setattr(signal, "pthread_sigmask", change)

    return arrange


def is_blocked() -> bool:
    return signal.SIGUSR1 in signal.pthread_sigmask(signal.SIG_BLOCK, ())


def test_one_that_comes_just_before_it_is_blocked_leaves_nothing_blocked(raises_once: Callable[[int], None]) -> None:
    raises_once(signal.SIG_BLOCK)
    with pytest.raises(Struck), soft_limit_deferred():
        pytest.fail("the block was entered")
    assert not is_blocked()
    with soft_limit_deferred():
        assert is_blocked()
        with pytest.raises(Struck), soft_limit_allowed():
            signal.pthread_kill(threading.get_ident(), signal.SIGUSR1)
        assert is_blocked()
    assert not is_blocked()


def test_what_is_raised_at_an_inner_block_leaves_the_outer_one_as_it_is(raises_once: Callable[[int], None]) -> None:
    with soft_limit_deferred():
        raises_once(signal.SIG_BLOCK)
        with pytest.raises(Struck), soft_limit_deferred():
            pytest.fail("the block was entered")
        assert is_blocked()
    assert not is_blocked()


def test_what_is_raised_while_one_is_dropped_leaves_nothing_blocked(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(signals: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(signal, "sigwait", interrupted)
    monkeypatch.setattr(signal, "sigpending", lambda: {signal.SIGUSR1})
    with pytest.raises(KeyboardInterrupt), soft_limit_deferred():
        assert is_blocked()
    assert not is_blocked()
    assert not limits._deferred


@pytest.mark.parametrize("how", [signal.SIG_UNBLOCK, signal.SIG_BLOCK], ids=["on the way in", "on the way out"])
def test_one_that_strikes_at_the_bodys_edge_leaves_the_rest_deferred(
    raises_once: Callable[[int], None], how: int
) -> None:
    with soft_limit_deferred():
        raises_once(how)
        with pytest.raises(Struck), soft_limit_allowed():
            pass
        assert is_blocked()
    assert not is_blocked()


def test_one_that_comes_while_it_is_deferred_is_dropped() -> None:
    with soft_limit_deferred():
        signal.pthread_kill(threading.get_ident(), signal.SIGUSR1)
        assert signal.SIGUSR1 in signal.sigpending()
    assert not signal.sigpending()
    assert not is_blocked()


def test_one_that_comes_when_nothing_is_waiting_any_more_is_dropped_too(monkeypatch: pytest.MonkeyPatch) -> None:
    def strike(*_: Any) -> None:
        raise SoftTimeLimitExceeded

    signal.signal(signal.SIGUSR1, strike)
    monkeypatch.setattr(signal, "sigpending", set)
    with soft_limit_deferred():
        signal.pthread_kill(threading.get_ident(), signal.SIGUSR1)
    assert not is_blocked()
    assert not limits._deferred
