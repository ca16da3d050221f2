"""For your tests: which jobs were enqueued, as Django's connection sees them, and a clean store after a test that committed.

Inside a ``TestCase`` everything is written in the test's own transaction, which rolls back: nothing is sent, nothing stays.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from celery_guard.errors import NotGuardedError
from celery_guard.integrations.celery.capture import decode_stored
from celery_guard.integrations.celery.current import guarded_app
from celery_guard.job.row import StoredPayload
from celery_guard.job.state import State
from celery_guard.store.sql.statement import Link
from celery_guard.store.sql.statements import people
from celery_guard.store.sql.tables import metadata

from .address import wrapper
from .door import DjangoCursor
from .store import DjangoStore

__all__ = ["EnqueuedJob", "delete_jobs", "enqueued_jobs"]

#: Which store this is, which stays.
_KEPT = "guard_store"


@dataclass(frozen=True, slots=True)
class EnqueuedJob:
    """A job as it was accepted: what its body will be called with, and where it stands."""

    id: str
    task: str
    queue: str
    tenant: str | None
    state: State
    args: Sequence[Any]
    kwargs: Mapping[str, Any]


def enqueued_jobs(task: Any = None) -> list[EnqueuedJob]:
    """The jobs of the store, the oldest first, also those of the transaction that is open; of one ``task``, or its name, or all.

    >>> with self.subTest("an order is charged once it is placed"):  # doctest: +SKIP
    ...     [job] = enqueued_jobs(charge)
    ...     self.assertEqual(job.kwargs, {"order_id": order.id})

    Raises:
        NotGuardedError: the project has no guarded app, or its store is none of Django's databases.
    """
    name = getattr(task, "name", task)
    rows = _link(_store()).rows(people.accepted, {})
    return [_job(*row) for row in rows if name is None or row[1] == name]


def delete_jobs() -> None:
    """Delete every job, and close the guard's own connections, which would keep Django from dropping the database in the end.

    For the teardown of a ``TransactionTestCase``, whose flush knows Django's models only.

    Raises:
        NotGuardedError: as :func:`enqueued_jobs`.
    """
    store = _store()
    link = _link(store)
    for name in metadata.tables:
        if name != _KEPT:
            link.changed(people.emptied, {}, name)
    store.close()


def _store() -> DjangoStore:
    runtime = guarded_app()
    if runtime is None or not isinstance(runtime.store, DjangoStore):
        raise NotGuardedError("These are for a guarded app whose store is one of Django's databases: django://default.")
    return runtime.store


def _link(store: DjangoStore) -> Link:
    return store.link(DjangoCursor(wrapper(store.alias)))


def _job(
    id: str, task: str, queue: str, tenant: str | None, state: str, body: Any, headers: str, delivery: str
) -> EnqueuedJob:
    runtime = guarded_app()
    assert runtime is not None
    payload = runtime.encryption.decrypt_message(id, StoredPayload(bytes(body), headers, delivery))
    args, kwargs, _ = decode_stored(payload)
    return EnqueuedJob(id, task, queue, tenant, State(state), args, kwargs)
