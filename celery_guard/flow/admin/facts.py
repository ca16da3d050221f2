"""Gathering what :mod:`.explain` decides from: the store's facts, and what workers and the broker say just now."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime, timezone
from typing import Protocol

from celery_guard.errors import StoreError
from celery_guard.job.replay import OPEN
from celery_guard.job.row import Job
from celery_guard.job.state import STANDING, State
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


def gather(
    store: Store, settings: Settings, asking: Asking, queues: Sequence[str] = (), tenant: str | None = None
) -> Facts:
    """What is known about the whole system, or what an actor of one tenant may go by. A store that is out is a fact."""
    try:
        store.check()
        backlog = {queue.queue: queue for queue in store.backlog(_SAMPLE)}
        return Facts(
            now=store.clock(),
            relays=tuple(beat for beat in store.heartbeats() if beat.is_relay),
            backlog=backlog,
            own=None if tenant is None else store.counts(tenant, STANDING),
            unknown=tuple(store.jobs(states=[State.UNKNOWN], tenant=tenant, limit=_UNKNOWN)),
            replays=tuple(store.replays(states=OPEN, tenant=tenant)),
            live=asking.ask(sorted({*backlog, *queues})),
            max_publications=settings.max_publications,
        )
    except StoreError as error:
        return Facts(now=datetime.now(timezone.utc), store_out=f"[{error.code}] {' '.join(str(error).split())}")


def gather_about(
    store: Store, job: Job, knows: Callable[[str], bool], may_see: Callable[[str | None], bool]
) -> Subject:
    """What is known about one job; of replays, those of tenants that may be seen."""
    holder = None if job.holder is None else store.job(job.holder)
    found = store.replays_with(job.id) if job.state is State.DEAD else []
    replays = tuple(replay for replay in found if may_see(replay.tenant))
    return Subject(job=job, holder=holder, known=knows(job.task), replays=replays)
