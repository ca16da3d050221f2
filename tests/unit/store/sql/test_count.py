"""What is left to be read at each scrape: nothing that was counted, and nothing that nobody counts."""

from __future__ import annotations

import pytest
from sqlalchemy import func, select

from celery_guard.job.state import Kind
from celery_guard.store.sql import SqlStore
from celery_guard.store.sql.tables import job
from celery_guard.testing.conformance.builders import new_job
from celery_guard.testing.conformance.moves import accept, publish


def uncounted(store: SqlStore) -> int:
    with store._database.engine.connect() as connection:
        found = select(func.count()).where(job.c.counted >= 0, job.c.finished.is_not(None))
        return int(connection.execute(found).scalar_one())


@pytest.mark.parametrize("end", ["published", "cancelled"])
def test_a_message_of_a_task_without_a_guard_is_not_looked_at_for_as_long_as_it_is_kept(
    store: SqlStore, end: str
) -> None:
    carried = new_job(kind=Kind.CARRIED)
    if end == "published":
        publish(store, carried)
    else:
        accept(store, carried)
        store.cancel(carried.id)
    store.fold(500)
    assert uncounted(store) == 0
