"""What Celery's side of a running attempt keeps until it is settled."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from celery_guard.flow.context import RunningJob
    from celery_guard.flow.enqueue import Draft
    from celery_guard.job.row import NewJob

    from .alike import Alike
    from .runtime import Runtime

__all__ = ["CeleryAttempt", "Collected", "collecting", "collector", "current_attempt", "not_collecting"]


@dataclass(slots=True)
class CeleryAttempt:
    """One body at work: the message it came with, and the one that carries it on, if it asked for that."""

    runtime: Runtime
    request: Any
    job: RunningJob
    #: A send under this attempt's own id (retry, replace): kept for settle instead of being enqueued.
    kept: Draft | None = None
    #: The kept message differs from this one: it was given other arguments or options.
    changed: bool = False
    #: The body said when to retry; otherwise the contract does.
    delayed: bool = False
    #: Sends of a canvas that replaces this attempt.
    handed_over: list[NewJob] | None = None
    #: ``retry`` found its own bound reached: whatever it raised is final.
    exhausted: bool = False


#: The innermost attempt of this task, thread or greenlet.
current_attempt: ContextVar[CeleryAttempt | None] = ContextVar("celery_guard_attempt", default=None)


@dataclass(slots=True)
class Collected:
    """Sends that are to be written together, later."""

    jobs: list[NewJob] = field(default_factory=list)
    results: list[Any] = field(default_factory=list)
    #: Celery itself sends (chain's next, links): what it passes on is checked no further than Celery would.
    by_celery: bool = False
    #: The versions of its payloads, where a message that is there already is accepted: it is not of this process's making.
    versions: Mapping[str, int] | None = None
    #: Builds the messages, where all are of one task and may be alike.
    alike: Alike | None = None

    def add(self, job: NewJob, result: Any) -> None:
        """Gather one more, with its handle."""
        self.jobs.append(job)
        self.results.append(result)

    def handles_of(self, results: list[Any], handles: list[Any]) -> list[Any]:
        """Of the handles of all that was gathered those of these results: the caller's iterator, or a function of the contract, may have sent more."""
        if len(handles) == len(results):
            return handles
        asked = {id(result) for result in results}
        return [handle for handle, result in zip(handles, self.results, strict=True) if id(result) in asked]


_collecting: ContextVar[Collected | None] = ContextVar("celery_guard_collecting", default=None)


@contextmanager
def collecting(
    *, by_celery: bool = False, versions: Mapping[str, int] | None = None, alike: Alike | None = None
) -> Iterator[Collected]:
    """Gather every send inside the block instead of writing it."""
    collected = Collected(by_celery=by_celery, versions=versions, alike=alike)
    token = _collecting.set(collected)
    try:
        yield collected
    finally:
        _collecting.reset(token)


@contextmanager
def not_collecting() -> Iterator[None]:
    """Inside the block sends are what they are: a body that is run in the middle of a block that gathers."""
    token = _collecting.set(None)
    try:
        yield
    finally:
        _collecting.reset(token)


def collector() -> Collected | None:
    """The innermost block that gathers sends; None outside one."""
    return _collecting.get()
