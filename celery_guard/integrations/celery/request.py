"""The silent main process: it acknowledges messages, and says nothing about jobs.

What becomes of a job whose child was killed, timed out or terminated is decided by the store: the lease lapses, the
sweep moves the row, and whoever moves it tells Celery. Celery's main process would store FAILURE, call the errbacks and return a chord part
for a job that is about to run again. So these hooks ack and stay silent. It also never talks to the store: no I/O here.
"""

from __future__ import annotations

import logging
from typing import Any

from billiard.exceptions import TimeLimitExceeded, WorkerLostError
from celery.exceptions import Ignore, Reject, Retry
from celery.worker.request import Request
from celery.worker.state import task_ready

from celery_guard.job.envelope import HEADER

from .runtime import runtime_of

__all__ = ["REVOKED", "GuardedRequest"]

#: What a delivery carries from the main process to the body's when a broadcast has revoked its job.
REVOKED = "guard_revoked"

logger = logging.getLogger("celery_guard.worker")


class GuardedRequest(Request):  # type: ignore[misc]
    """A delivery of a guarded job, as the worker's main process sees it."""

    @property
    def _unguarded(self) -> bool:
        """While the guard is taken out, a message without its header is Celery's."""
        return HEADER not in self._request_dict and runtime_of(self.app).leaves(self.task)

    def revoked(self) -> bool:
        """Never: a cancel is a fact of the row, and so is a deadline. The claim honours both.

        What only this worker has heard (a broadcast by stamps, or from an app without the guard) travels on with the
        delivery, and becomes such a fact before the claim.
        """
        if self._unguarded:
            return bool(super().revoked())
        if super().revoked():
            self._request_dict[REVOKED] = True
        return False

    def maybe_expire(self) -> bool:
        """Never: by the store's clock only, at the claim."""
        return bool(super().maybe_expire()) if self._unguarded else False

    def terminate(self, pool: Any, signal: Any = None) -> None:
        """Never: a signal is aimed at a process, which may be at another job by now. Where the guard is asked, it cancels the row."""
        if self._unguarded:
            super().terminate(pool, signal)
            return
        logger.warning(
            "%s[%s] is not terminated: a broadcast cannot cancel a guarded job. To cancel it: app.control.revoke() of the app "
            "with the guard, or `celery guard jobs cancel`",
            self.name, self.id,
        )  # fmt: skip

    def info(self, safe: bool = False) -> Any:
        """For ``inspect``: a call with sensitive arguments is shown as its message shows it, masked."""
        contract = None if self._unguarded else runtime_of(self.app).contract_of(self.task)
        return super().info(safe=safe or (contract is not None and bool(contract.sensitive)))

    def on_timeout(self, soft: bool, timeout: float) -> None:
        """The pool kills the child; the row is recovered when its lease lapses."""
        if soft or self._unguarded:
            super().on_timeout(soft, timeout)
            return
        task_ready(self)
        logger.error("hard time limit (%ss) exceeded for %s[%s]", timeout, self.name, self.id)
        if self.task.acks_late:
            self.acknowledge()

    def on_failure(self, exc_info: Any, send_failed_event: bool = True, return_ok: bool = False) -> Any:
        """What a child reported goes Celery's way; what happened to a child is the store's affair."""
        error = getattr(exc_info.exception, "exc", exc_info.exception)
        if return_ok or self._unguarded or isinstance(error, (Reject, Ignore, Retry, MemoryError)):
            return super().on_failure(exc_info, send_failed_event=send_failed_event, return_ok=return_ok)
        task_ready(self)
        if isinstance(error, WorkerLostError):
            logger.error("%s[%s] lost its process: %s; the store brings the job back", self.name, self.id, error)
        elif not isinstance(error, TimeLimitExceeded):
            logger.error("%s[%s] was ended from outside (%r); the store brings the job back", self.name, self.id, error)
        if self.task.acks_late:
            self.acknowledge()
        return None

    def _announce_revoked(self, reason: str, terminated: bool, signum: Any, expired: bool) -> None:
        """Nothing: whoever cancels the row says so."""
        if self._unguarded:
            super()._announce_revoked(reason, terminated, signum, expired)

    def _announce_cancelled(self, emit_retry: bool = True) -> None:
        if self._unguarded:
            super()._announce_cancelled(emit_retry)
            return
        task_ready(self)
        self._already_cancelled = True
