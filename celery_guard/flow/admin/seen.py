"""One job, as whoever acts may see it."""

from __future__ import annotations

from dataclasses import replace

from celery_guard.job.encryption import concealed
from celery_guard.job.row import Job
from celery_guard.store.protocol import Store

from .actor import Action, Actor
from .audit import Authority

__all__ = ["seen_job"]


def seen_job(store: Store, authority: Authority, id: str, by: Actor, action: Action) -> Job:
    """The job, its failures' ciphertexts named and not shown. Raises ``NotFound``, also where it is another tenant's; the audit has that."""
    job = store.job(id)
    if job is None or not by.may_see(job.tenant):
        raise authority.missing(by, action, f"job {id}", hidden=job is not None)
    return replace(job, failures=tuple(map(concealed, job.failures)))
