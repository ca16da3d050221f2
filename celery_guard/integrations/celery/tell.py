"""Telling Celery how a job ended, so that trouble with the result backend does not change how it ended.

Celery turns a task whose result could not be stored into a failure, and calls the errbacks for a job that has succeeded. The
row is the truth: when the backend is out the trouble is logged, the job stays untold, and the sweep has it told again.

So it is with a chord whose body nobody may have sent. Celery's Redis backend has one delivery send it, and turns all others away until
that one is through or its time is over (20 seconds and more). If its process died over that, a part that is told again meanwhile is turned away
in silence: it has to be told once more.

That a job is to run again is told when its row says so already. So another delivery may have brought it to its end by then, and told that::

    this delivery   settle: it runs again                                            RETRY, then a look at the row: FAILURE again
    another                                  claim, body, settle, FAILURE, told

Without that look RETRY would be the last word: nobody tells a second time what is told, and who waits for the result would wait for ever.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from celery.exceptions import Reject

from celery_guard.errors import JobFailed

from .hanging import claim_of

if TYPE_CHECKING:
    from celery_guard.flow.lease import LeaseKeeper

__all__ = ["GoingOn", "Telling"]

logger = logging.getLogger("celery_guard.run")


class Telling:
    """A result backend, while it is told about one settled job."""

    def __init__(self, backend: Any, keeper: LeaseKeeper) -> None:
        self._backend = backend
        self._keeper = keeper

    def __getattr__(self, name: str) -> Any:
        return getattr(self._backend, name)

    def mark_as_done(self, task_id: str, result: Any, request: Any = None, *args: Any, **kwargs: Any) -> None:
        """Store the result and return the chord's part, or leave the job untold."""
        try:
            self._backend.mark_as_done(task_id, result, request, *args, **kwargs)
            _unless_turned_away(self._backend, task_id, request)
            self._told(task_id, request)
        except Exception as error:  # noqa: BLE001 - whatever ails the backend, the job has ended; it is told again
            _not_told(request, task_id, error)

    def mark_as_failure(
        self, task_id: str, exc: Any, traceback: Any = None, request: Any = None, **kwargs: Any
    ) -> None:
        """Store the failure, return the chord's part and call the errbacks, or leave the job untold."""
        if isinstance(exc, JobFailed) and isinstance(exc.__cause__, Reject):
            # the tracer has words of its own for the body's Reject; who asks for the result is given it, as by Celery
            exc = exc.__cause__
        try:
            self._backend.mark_as_failure(task_id, exc, traceback, request=request, **kwargs)
            _unless_turned_away(self._backend, task_id, request)
            self._told(task_id, request)
        except Exception as error:  # noqa: BLE001 - as above
            _not_told(request, task_id, error)

    def mark_as_revoked(self, task_id: str, reason: str = "", request: Any = None, **kwargs: Any) -> None:
        """Store that it was cancelled and return the chord's part, or leave the job untold."""
        try:
            self._backend.mark_as_revoked(task_id, reason, request=request, **kwargs)
            _unless_turned_away(self._backend, task_id, request)
            self._told(task_id, request)
        except Exception as error:  # noqa: BLE001 - as above
            _not_told(request, task_id, error)

    def _told(self, task_id: str, request: Any) -> None:
        """Have it noted: the result is stored, the chord's part returned, the errbacks called."""
        if request is not None and request.guard_tells is not None:
            self._keeper.told(task_id, request.guard_tells)


class GoingOn:
    """A result backend, while it is told that a job is to run again. ``end`` says how that job has ended since, in Celery's words."""

    def __init__(self, backend: Any, end: Callable[[str], tuple[str, Any] | None]) -> None:
        self._backend = backend
        self._end = end

    def __getattr__(self, name: str) -> Any:
        return getattr(self._backend, name)

    def mark_as_retry(self, task_id: str, exc: Any, traceback: Any = None, request: Any = None, **kwargs: Any) -> None:
        """Store RETRY, and then the end, if there is one."""
        self._backend.mark_as_retry(task_id, exc, traceback, request=request, **kwargs)
        try:
            end = self._end(task_id)
            if end is not None:
                state, value = end
                self._backend.store_result(task_id, value, state, request=request)
        except Exception as error:  # noqa: BLE001 - whatever ails the store, or what is stored: the job goes on as it is settled
            logger.warning(
                "job %s is to run again; whether it has ended since could not be looked at: %r", task_id, error
            )


def _not_told(request: Any, task_id: str, error: Exception) -> None:
    logger.error("Celery could not be told how job %s ended, it will be told again: %r", task_id, error)
    if request is not None:
        request.guard_tells = None


def _unless_turned_away(backend: Any, task_id: str, request: Any) -> None:
    """Leave a chord's member that was told again untold, while somebody else has claimed to send the chord's body."""
    if not getattr(request, "guard_hands_back", False):
        return
    claim = claim_of(backend, request)
    if claim is not None and backend.client.get(claim) not in (None, b"done", "done"):
        logger.info("job %s: the body of its chord is being sent by another delivery, or was by one that died", task_id)
        request.guard_tells = None
