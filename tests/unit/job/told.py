"""What is told about an exception, and whether every database takes it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from celery_guard.job.failure import MESSAGE_LIMIT, TRACEBACK_LIMIT, describe
from celery_guard.job.row import StoredFailure


def told(error: BaseException, task: str = "shop.charge") -> StoredFailure:
    return describe(error, failure_class="unknown", task=task, worker="w1@host", fence=7, attempt=2)


def raised(body: Callable[[], Any]) -> StoredFailure:
    """What is told about the exception that ``body`` raises."""
    try:
        body()
    except BaseException as error:  # noqa: BLE001 - any
        return told(error)
    raise AssertionError("nothing was raised")


def is_safe(failure: StoredFailure) -> bool:
    """Bounded, and taken by every database."""
    texts = (failure.type_name, failure.message, failure.traceback, failure.cause, failure.worker)
    for text in texts:
        text.encode()
        assert type(text) is str
        assert "\x00" not in text
    assert len(failure.message.encode()) <= MESSAGE_LIMIT
    assert len(failure.traceback.encode()) <= TRACEBACK_LIMIT
    assert len(failure.type_name) <= 255
    assert len(failure.cause) == 16
    return True


def fail(message: str = "no such order") -> None:
    raise ValueError(message)
