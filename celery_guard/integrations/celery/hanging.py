"""What Celery sends by itself when a job has ended, while the store is away.

The body of a chord is sent by whoever returns its last part. Celery takes any error of that send for the end of the chord, and forgets its
parts: no second telling brings the body back. So such a send is not refused while the store cannot be reached: it waits. A process that
dies meanwhile has sent nothing, and its part is told again.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TypeVar

from celery import current_task

from celery_guard.errors import StoreUnavailableError

__all__ = ["once_it_can_be_written"]

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
