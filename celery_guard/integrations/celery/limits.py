"""Celery's soft time limit strikes at any bytecode. While a job is claimed or settled it has to wait.

The prefork pool raises ``SoftTimeLimitExceeded`` from a signal handler. Between the first byte of a claim and the last of a
settle that would leave a row half thought through, so the signal is blocked except while the body runs. One that arrives after the
body is dropped: the body is done. Pools without the signal (threads, solo, gevent) have nothing to defer.

The gevent pool raises its hard limit as a ``gevent.Timeout`` wherever the greenlet waits; one that is killed gets a ``GreenletExit``.
"""

from __future__ import annotations

import signal
import threading
from contextlib import suppress

from billiard.exceptions import SoftTimeLimitExceeded

__all__ = ["greenlet_killed", "greenlet_timed_out", "soft_limit_allowed", "soft_limit_deferred"]

_SIGNAL = getattr(signal, "SIGUSR1", None)


def _applies() -> bool:
    return (
        _SIGNAL is not None
        and hasattr(signal, "pthread_sigmask")
        and threading.current_thread() is threading.main_thread()
        and callable(signal.getsignal(_SIGNAL))
    )


#: Whether this process's main thread is inside :class:`soft_limit_deferred`, and the signal is blocked by it.
_deferred = False


class soft_limit_deferred:
    """Block the soft limit for the time of the block; one that arrived meanwhile is dropped at its end."""

    __slots__ = ("_ours",)

    def __enter__(self) -> None:
        global _deferred
        self._ours = False
        if _applies():
            assert _SIGNAL is not None
            try:
                self._ours = _SIGNAL not in signal.pthread_sigmask(signal.SIG_BLOCK, {_SIGNAL})
            except BaseException:
                # one that came just before is raised by the call itself, which has blocked those behind it
                if not _deferred:
                    signal.pthread_sigmask(signal.SIG_UNBLOCK, {_SIGNAL})
                raise
            _deferred = _deferred or self._ours

    def __exit__(self, *_: object) -> None:
        global _deferred
        if self._ours:
            assert _SIGNAL is not None
            try:
                while _SIGNAL in signal.sigpending():
                    signal.sigwait({_SIGNAL})
            finally:
                _deferred = False
                with suppress(SoftTimeLimitExceeded):
                    # the call raises one that came since then; it is dropped, too
                    signal.pthread_sigmask(signal.SIG_UNBLOCK, {_SIGNAL})


class soft_limit_allowed:
    """Let the soft limit strike inside the block; used around the body, inside :class:`soft_limit_deferred`."""

    __slots__ = ("_ours",)

    def __enter__(self) -> None:
        self._ours = _deferred and threading.current_thread() is threading.main_thread()
        if self._ours:
            assert _SIGNAL is not None
            try:
                signal.pthread_sigmask(signal.SIG_UNBLOCK, {_SIGNAL})
            except BaseException:
                # it has waited for this
                signal.pthread_sigmask(signal.SIG_BLOCK, {_SIGNAL})
                raise

    def __exit__(self, *_: object) -> None:
        if self._ours:
            assert _SIGNAL is not None
            signal.pthread_sigmask(signal.SIG_BLOCK, {_SIGNAL})


def greenlet_timed_out(error: BaseException) -> bool:
    """Whether this is a ``gevent.Timeout``; by name, since gevent need not be installed."""
    return _is(error, "gevent", "Timeout")


def greenlet_killed(error: BaseException) -> bool:
    """Whether this is the ``GreenletExit`` of a greenlet that is ended from outside."""
    return _is(error, "greenlet", "GreenletExit")


def _is(error: BaseException, package: str, name: str) -> bool:
    return any(kind.__name__ == name and kind.__module__.split(".")[0] == package for kind in type(error).__mro__)
