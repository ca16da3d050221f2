"""An eager job on a caller's connection that commits each statement by itself: there is no transaction that would keep it from others."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from celery import Celery
from sqlalchemy import Connection, create_engine, text
from sqlalchemy.pool import NullPool

from celery_guard import GuardedTask
from celery_guard.flow.context import ownership_of
from celery_guard.job.state import State


@pytest.fixture
def app(shared: Celery) -> Celery:
    return shared


@pytest.fixture
def connection(app: Celery) -> Iterator[Connection]:
    engine = create_engine(app.guard.settings.store, poolclass=NullPool, isolation_level="AUTOCOMMIT")
    with engine.connect() as connection:
        connection.execute(text("CREATE TABLE IF NOT EXISTS eager_order (id INTEGER PRIMARY KEY)"))
        connection.execute(text("DELETE FROM eager_order"))
        yield connection


def test_a_bodys_own_writes_are_undone_when_it_fails(app: Celery, connection: Connection) -> None:
    @app.task(base=GuardedTask, shared=False, bind=True)
    def writes(self: Any, number: int, fail: bool) -> None:
        self.job.transaction().execute(text("INSERT INTO eager_order (id) VALUES (:number)"), {"number": number})
        if fail:
            raise ValueError("no")

    with app.guard.using(connection):
        writes.delay(1, fail=True)
        writes.delay(2, fail=False)
    assert list(connection.execute(text("SELECT id FROM eager_order")).scalars()) == [2]


def test_the_lease_is_kept_since_others_see_the_job(app: Celery, connection: Connection) -> None:
    """A renewal is what hears of a cancel, too."""

    @app.task(base=GuardedTask, shared=False, bind=True)
    def is_cancelled(self: Any) -> None:
        app.guard.store.cancel(self.job.id)
        # so long ago that it asks
        ownership_of(self.job).renewed -= 2
        self.job.check()

    with app.guard.using(connection):
        id = is_cancelled.delay().id
    found = app.guard.store.job(id)
    assert found is not None
    assert found.state is State.CANCELLED


def test_a_job_of_a_body_joins_in_the_bodys_transaction(app: Celery, connection: Connection) -> None:
    @app.task(base=GuardedTask, shared=False)
    def child() -> None: ...

    @app.task(base=GuardedTask, shared=False, bind=True)
    def parent(self: Any, fail: bool) -> None:
        self.job.transaction().execute(text("INSERT INTO eager_order (id) VALUES (1)"))
        child.delay()
        if fail:
            raise ValueError("no")

    parent.delay(fail=True)
    assert app.guard.store.counts() == {State.DEAD: 1}
    parent.delay(fail=False)
    assert app.guard.store.counts() == {State.DEAD: 1, State.SUCCEEDED: 2}
