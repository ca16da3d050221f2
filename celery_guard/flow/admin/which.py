"""Which jobs are meant: the filter that lists, watches and cancels share. Values only."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from datetime import timedelta

from celery_guard.job.row import Job
from celery_guard.job.state import State
from celery_guard.store.protocol import Store

__all__ = ["Which"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Which:
    """Jobs by what they are. Every word that is given has to hold; with none, all jobs are meant.

    >>> str(Which(task="shop.charge", states=(State.DEAD,), older=timedelta(hours=1)))
    'states=dead task=shop.charge older=1:00:00'
    """

    states: tuple[State, ...] = ()
    task: str | None = None
    queue: str | None = None
    tenant: str | None = None
    #: The hash of a key, as rows have it; :meth:`.jobs.Jobs.key` works it out.
    key: str | None = None
    #: ``transient``, ``permanent`` ...: how it failed last.
    failure_class: str | None = None
    #: The cause group: what failed alike.
    cause: str | None = None
    #: Accepted at least so long ago.
    older: timedelta | None = None
    #: Accepted at most so long ago.
    younger: timedelta | None = None

    def __str__(self) -> str:
        return " ".join(f"{name}={value}" for name, value in self.words.items()) or "all jobs"

    @property
    def words(self) -> Mapping[str, str]:
        """What is given, as text, for the audit and for ``authorize``."""
        given = {field.name: getattr(self, field.name) for field in fields(self)}
        return {
            name: ",".join(value) if isinstance(value, tuple) else str(value) for name, value in given.items() if value
        }

    def of_tenant(self, tenant: str | None) -> Which:
        """The same, of one tenant, where that is said."""
        return self if tenant is None else replace(self, tenant=tenant)

    def find(self, store: Store, limit: int, after: str | None = None) -> list[Job]:
        """Such jobs, newest first; ``after`` is the id of the last one of the page before."""
        return store.jobs(
            states=self.states, task=self.task, queue=self.queue, tenant=self.tenant, key=self.key, cause=self.cause,
            failure_class=self.failure_class, older=self.older, younger=self.younger, limit=limit, after=after,
        )  # fmt: skip
