"""Gathering what :mod:`.explain` decides from: the store's facts, and what workers and the broker say just now."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime, timezone
from typing import Protocol

from celery_guard.errors import StoreError
from celery_guard.job.row import Job
from celery_guard.job.state import State
from celery_guard.settings import Settings
from celery_guard.store.protocol import Store

from .blocker import Facts, Live, Subject

__all__ = ["Asking", "gather", "gather_about"]

#: Of each state so many jobs are looked at, those that are due first.
_SAMPLE = 10_000
_UNKNOWN = 100


class Asking(Protocol):
    """Asks workers and the broker."""

    def ask(self, queues: Sequence[str]) -> Live:
        """Who consumes, and how many messages are in these queues. Takes a few seconds at most, and never raises."""
        ...


def gather(store: Store, settings: Settings, asking: Asking, queues: Sequence[str] = ()) -> Facts:
    """What is known about the whole system. A store that is out is a fact."""
    try:
        store.check()
        backlog = {queue.queue: queue for queue in store.backlog(_SAMPLE)}
        return Facts(
            now=store.clock(),
            relays=tuple(beat for beat in store.heartbeats() if beat.name.startswith("relay:")),
            backlog=backlog,
            unknown=tuple(store.jobs(states=[State.UNKNOWN], limit=_UNKNOWN)),
            live=asking.ask(sorted({*backlog, *queues})),
            max_publications=settings.max_publications,
        )
    except StoreError as error:
        return Facts(now=datetime.now(timezone.utc), store_out=f"[{error.code}] {' '.join(str(error).split())}")


def gather_about(store: Store, job: Job, knows: Callable[[str], bool]) -> Subject:
    """What is known about one job."""
    holder = None if job.holder is None else store.job(job.holder)
    return Subject(job=job, holder=holder, known=knows(job.task))
