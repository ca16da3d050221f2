"""Celery's soft time limit strikes at any bytecode. While a job is claimed or settled it has to wait.

The prefork pool raises ``SoftTimeLimitExceeded`` from a signal handler. Between the first byte of a claim and the last of a
settle that would leave a row half thought through, so the signal is blocked except while the body runs. One that arrives after the
body is dropped: the body is done. Pools without the signal (threads, solo, gevent) have nothing to defer.

The gevent pool raises its hard limit as a ``gevent.Timeout`` wherever the greenlet waits; one that is killed gets a ``GreenletExit``.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["greenlet_killed", "greenlet_timed_out", "soft_limit_allowed", "soft_limit_deferred"]

_SIGNAL = getattr(signal, "SIGUSR1", None)


def _applies() -> bool:
    return (
        _SIGNAL is not None
        and hasattr(signal, "pthread_sigmask")
        and threading.current_thread() is threading.main_thread()
        and callable(signal.getsignal(_SIGNAL))
    )


@contextmanager
def soft_limit_deferred() -> Iterator[None]:
    """Block the soft limit for the time of the block; one that arrived meanwhile is dropped at its end."""
    if not _applies():
        yield
        return
    assert _SIGNAL is not None
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {_SIGNAL})
    try:
        yield
    finally:
        if _SIGNAL not in before:
            while _SIGNAL in signal.sigpending():
                signal.sigwait({_SIGNAL})
            signal.pthread_sigmask(signal.SIG_SETMASK, before)


@contextmanager
def soft_limit_allowed() -> Iterator[None]:
    """Let the soft limit strike inside the block; used around the body, inside :func:`soft_limit_deferred`."""
    if not _applies():
        yield
        return
    assert _SIGNAL is not None
    before = signal.pthread_sigmask(signal.SIG_UNBLOCK, {_SIGNAL})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def greenlet_timed_out(error: BaseException) -> bool:
    """Whether this is a ``gevent.Timeout``; by name, since gevent need not be installed."""
    return _is(error, "gevent", "Timeout")


def greenlet_killed(error: BaseException) -> bool:
    """Whether this is the ``GreenletExit`` of a greenlet that is ended from outside."""
    return _is(error, "greenlet", "GreenletExit")


def _is(error: BaseException, package: str, name: str) -> bool:
    return any(kind.__name__ == name and kind.__module__.split(".")[0] == package for kind in type(error).__mro__)
