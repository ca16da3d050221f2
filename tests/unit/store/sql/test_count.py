"""What counting costs: who reads the totals, and who writes them."""

from __future__ import annotations

import pytest
from sqlalchemy import func, select

from celery_guard.job.state import Kind
from celery_guard.job.tally import Count
from celery_guard.store.sql import SqlStore
from celery_guard.store.sql.tables import job
from celery_guard.testing.conformance.builders import LONG, new_id, new_job
from celery_guard.testing.conformance.moves import accept, publish, succeed, take

from .said import statements_of


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


def test_a_batch_that_was_published_is_counted_by_one_statement_however_many_tasks_are_in_it(store: SqlStore) -> None:
    jobs = [new_job(task=f"shop.{n % 3}") for n in range(6)]
    accept(store, *jobs)
    token = new_id()
    take(store, token)
    said = statements_of(store)
    assert store.sent(token, [each.id for each in jobs], LONG) == 6
    assert len([text for text in said if "guard_count" in text]) == 1
    published = {one.task: one.total for one in store.counted() if one.what is Count.PUBLISHED}
    assert published == {"shop.0": 2, "shop.1": 2, "shop.2": 2}


def test_schedules_are_only_asked_for_where_one_has_sent_a_job(store: SqlStore) -> None:
    def asked() -> int:
        said = statements_of(store)
        assert store.fold(500)
        return len([text for text in said if "GROUP BY guard_job.schedule" in text])

    succeed(store)
    assert asked() == 0
    succeed(store)
    succeed(store, new_job(schedule="nightly"))
    assert asked() == 1
