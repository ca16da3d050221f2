"""Values for the tests: jobs, results, failures and settlements with only what the test is about spelled out."""

from __future__ import annotations

from datetime import timedelta
from hashlib import sha256
from typing import Any
from uuid import uuid4

from celery_guard.job.row import Attempt, NewJob, Outgoing, StoredFailure, StoredPayload, StoredResult
from celery_guard.job.settlement import Settlement
from celery_guard.job.state import Reason, State
from celery_guard.job.verdict import Granted

__all__ = [
    "LONG",
    "NONE",
    "SOON",
    "dead",
    "digest",
    "ended",
    "failure",
    "handed_over",
    "keyed",
    "new_id",
    "new_job",
    "payload",
    "recovered",
    "result",
    "retried",
    "succeeded",
]

NONE = timedelta(0)
#: Passes while a test waits for it.
SOON = timedelta(milliseconds=60)
#: Never passes while a test runs.
LONG = timedelta(hours=1)


def new_id() -> str:
    """An id as Celery makes them."""
    return str(uuid4())


def digest(text: str) -> str:
    """A key or a fingerprint, as the contract would compute it from this text."""
    return sha256(text.encode()).hexdigest()


def payload(body: bytes = b"[[], {}, {}]", headers: str = "{}", delivery: str = "{}") -> StoredPayload:
    return StoredPayload(body=body, headers=headers, delivery=delivery)


def new_job(**given: Any) -> NewJob:
    """A job to be accepted; without a key."""
    return NewJob(**{"id": new_id(), "task": "shop.charge", "queue": "default", "payload": payload(), **given})


def keyed(key: str, what: str = "same", **given: Any) -> NewJob:
    """A job under a key; ``what`` is what a duplicate has to repeat."""
    return new_job(key=digest(key), fingerprint=digest(what), **given)


def result(body: bytes = b'"done"') -> StoredResult:
    return StoredResult(body=body, content_type="application/json", content_encoding="utf-8")


def failure(message: str = "card declined", **given: Any) -> StoredFailure:
    values = {
        "failure_class": "permanent",
        "type_name": "shop.CardDeclined",
        "message": message,
        "traceback": "Traceback (most recent call last): ...",
        "cause": "c0ffee",
        "worker": "worker@host",
    }
    return StoredFailure(**{**values, **given})


def _owned(granted: Granted, given: dict[str, Any], **usual: Any) -> Settlement:
    return Settlement(id=granted.id, fence=granted.fence, owner=granted.owner, **{**usual, **given})


def succeeded(granted: Granted, **given: Any) -> Settlement:
    """The attempt returned; by default Celery needs not be told."""
    return _owned(granted, given, state=State.SUCCEEDED, told=True, result=result())


def dead(granted: Granted, **given: Any) -> Settlement:
    """The attempt failed for good; by default Celery needs not be told."""
    return _owned(granted, given, state=State.DEAD, told=True, reason=Reason.FAILED, failure=failure())


def handed_over(granted: Granted, **given: Any) -> Settlement:
    """The job hands itself over to others, the last of whom brings its id back."""
    values = {"reason": Reason.HANDED_OVER, "delay": LONG, "charged": False, "retried": False}
    return retried(granted, **{**values, **given})


def retried(granted: Granted, **given: Any) -> Settlement:
    """The attempt failed and is to be repeated, by default at once."""
    return _owned(granted, given, state=State.PENDING, reason=Reason.RETRY, retried=True)


def ended(taken: Outgoing, **given: Any) -> Settlement:
    """The end that a relay writes for a row it has taken and cannot publish."""
    values = {"state": State.DEAD, "reason": Reason.UNPUBLISHABLE, "failure": failure("too large"), "told": True}
    return Settlement(id=taken.id, fence=0, owner="", **{**values, **given})


def recovered(attempt: Attempt, **given: Any) -> Settlement:
    """What the sweep writes for an attempt or a message that was lost."""
    values = {"state": State.PENDING, "reason": Reason.LOST}
    return Settlement(id=attempt.id, fence=attempt.fence, owner=attempt.owner, **{**values, **given})
