"""What Celery sends by itself when a job has ended, while the store is away.

The body of a chord is sent by whoever returns its last part. Celery takes any error of that send for the end of the chord, and forgets its
parts: no second telling brings the body back. So such a send is not refused while the store cannot be reached: it waits. A process that
dies meanwhile has sent nothing, and its part is told again.

A process that is told to end meanwhile unwinds, and on the way Celery notes the body as sent and forgets the parts. It does so only while it has the claim
to send it: that is given back first, as if it had died.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any, TypeVar

from celery import current_task

from celery_guard.errors import StoreUnavailableError

__all__ = ["claim_of", "once_it_can_be_written"]

T = TypeVar("T")

#: How long it waits, in seconds, and how often it tries at most; the store's own tries are within each.
_WAITS, _TRIES = 900.0, 1_000

#: By which a result backend that counts no parts sends the body.
_UNLOCK = "celery.chord_unlock"

logger = logging.getLogger("celery_guard.enqueue")


def once_it_can_be_written(write: Callable[[], T]) -> T:
    """Write; again and again while the store cannot be reached, if it is Celery that sends. The same ids are the same jobs.

    Raises:
        StoreUnavailableError: somebody else sends, who can be told; or the store was away for a quarter of an hour.
    """
    try:
        return _patiently(write)
    except Exception:
        raise
    except BaseException:
        if _celery_sends():
            _give_back(current_task)
        raise


def claim_of(backend: Any, request: Any) -> str | None:
    """The key under which the one is known that sends the body of this member's chord: a token, and in the end a word. There since Celery 5.7, on Redis."""
    if not request.chord or not request.group or not hasattr(type(backend), "_chord_part_return_script"):
        return None
    key: str = backend.get_key_for_group(request.group, ".c")
    return key


def _give_back(task: Any) -> None:
    backend = task._backend if task._backend is not None else task.app.backend
    claim = claim_of(backend, task.request)
    if claim is not None:
        logger.warning("what hangs on job %s was not sent: the process ends; it is told again", task.request.id)
        backend.client.delete(claim)


def _patiently(write: Callable[[], T]) -> T:
    try:
        return write()
    except StoreUnavailableError as error:
        if not _celery_sends():
            raise
        # a process that only sends needs none of it
        from celery_guard.store.patience import Patience

        logger.warning("what hangs on job %s waits to be written: %s", current_task.request.id, error)
        patience = Patience(tries=_TRIES, seconds=_WAITS, first=0.1)
        return patience.repeat(write, lambda other: isinstance(other, StoreUnavailableError), error)


def _celery_sends() -> bool:
    """Whether a job has ended here, and Celery is being told; or is the unlocker of a chord at work."""
    if not current_task:
        return False
    return getattr(current_task.request, "guard_tells", None) is not None or current_task.name == _UNLOCK
