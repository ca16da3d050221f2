"""What a body writes, the jobs it enqueues and its job's end commit together, or not at all."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from sqlalchemy import event, text
from sqlalchemy.exc import IntegrityError

from celery_guard.errors import StoreUnavailableError
from celery_guard.job.state import Reason, State
from celery_guard.job.verdict import Accepted, Granted
from celery_guard.store.sql import SqlStore
from celery_guard.store.sql.transaction import SqlTransaction
from celery_guard.testing.conformance.builders import LONG, dead, keyed, new_job, succeeded
from celery_guard.testing.conformance.moves import found, lapse, start, take, taken_ids


@pytest.fixture
def shop(store: SqlStore) -> Iterator[SqlStore]:
    """A store beside a table of the program's."""
    with store._database.engine.connect() as connection:
        connection.execute(text("CREATE TABLE shop_order (id INTEGER PRIMARY KEY)"))
    yield store
    with store._database.engine.connect() as connection:
        connection.execute(text("DROP TABLE shop_order"))


def _write(transaction: SqlTransaction, number: int) -> None:
    transaction.session.execute(text("INSERT INTO shop_order (id) VALUES (:id)"), {"id": number})


def _written(store: SqlStore) -> list[int]:
    with store._database.engine.connect() as connection:
        return list(connection.execute(text("SELECT id FROM shop_order ORDER BY id")).scalars())


def test_effects_jobs_and_the_end_commit_together(shop: SqlStore) -> None:
    granted, child = start(shop), keyed("child")
    transaction = shop.begin()
    _write(transaction, 1)
    assert transaction.door.enqueue([child]) == [Accepted(child.id)]
    assert (_written(shop), shop.job(child.id), found(shop, granted.id).state) == ([], None, State.RUNNING)
    assert transaction.commit(succeeded(granted))
    assert _written(shop) == [1]
    assert found(shop, granted.id).state is State.SUCCEEDED
    assert taken_ids(shop) == [child.id]


def test_an_attempt_that_is_not_the_owner_leaves_nothing(shop: SqlStore) -> None:
    granted, attempt = lapse(shop)
    stale = shop.begin()
    _write(stale, 1)
    stale.door.enqueue([new_job()])
    if shop._traits.name == "sqlite":
        # One writer at a time: the other's move has to come before this one's first write.
        stale.rollback()
    assert shop.recover(attempt, dead(granted, reason=Reason.CRASHED))
    if shop._traits.name == "sqlite":
        _write(stale, 1)
        stale.door.enqueue([new_job()])
    assert stale.commit(succeeded(granted)) is False
    assert _written(shop) == []
    assert found(shop, granted.id).state is State.DEAD
    assert len(shop.jobs()) == 1


def test_a_rollback_leaves_nothing_and_the_attempt_goes_on(shop: SqlStore) -> None:
    granted = start(shop)
    transaction = shop.begin()
    _write(transaction, 1)
    transaction.door.enqueue([new_job()])
    transaction.rollback()
    assert _written(shop) == []
    assert shop.settle(succeeded(granted))
    assert len(shop.jobs()) == 1


def test_a_body_cannot_commit_without_its_end(shop: SqlStore) -> None:
    transaction = shop.begin()
    _write(transaction, 1)
    with pytest.raises(RuntimeError, match="begin_nested"):
        transaction.session.commit()
    transaction.rollback()
    assert _written(shop) == []


def test_savepoints_are_the_bodys_own(shop: SqlStore) -> None:
    granted = start(shop)
    transaction = shop.begin()
    _write(transaction, 1)
    with transaction.session.begin_nested():
        _write(transaction, 2)
    undone = transaction.session.begin_nested()
    _write(transaction, 3)
    undone.rollback()
    assert transaction.commit(succeeded(granted))
    assert _written(shop) == [1, 2]


def test_what_the_database_has_against_the_bodys_writes_is_raised_as_it_is(shop: SqlStore) -> None:
    granted = start(shop)
    transaction = shop.begin()
    _write(transaction, 1)
    with pytest.raises(IntegrityError):
        _write(transaction, 1)
    transaction.rollback()
    assert _written(shop) == []
    assert found(shop, granted.id).state is State.RUNNING


def test_followers_are_released_by_the_commit(shop: SqlStore) -> None:
    granted, follower = start(shop, keyed("order")), keyed("order", in_canvas=True)
    shop.enqueue([follower])
    assert take(shop) == []
    assert shop.begin().commit(succeeded(granted))
    assert taken_ids(shop) == [follower.id]


def _kill(store: SqlStore, transaction: SqlTransaction) -> None:
    """Have the server end the session of a transaction."""
    if store._traits.name == "postgresql":
        number = transaction.session.execute(text("SELECT pg_backend_pid()")).scalar_one()
        kill = f"SELECT pg_terminate_backend({number})"
    else:
        number = transaction.session.execute(text("SELECT connection_id()")).scalar_one()
        kill = f"KILL {number}"
    with store._database.engine.connect() as connection:
        connection.exec_driver_sql(kill)


@pytest.fixture
def served(shop: SqlStore) -> SqlStore:
    if shop._traits.name == "sqlite":
        pytest.skip("SQLite has no server that could end a session")
    return shop


def test_a_connection_lost_at_the_commit_leaves_the_row_to_tell(served: SqlStore) -> None:
    granted = start(served)
    transaction = served.begin()
    _write(transaction, 1)
    event.listen(transaction.session, "before_commit", lambda session: _kill(served, transaction))
    with pytest.raises(StoreUnavailableError):
        transaction.commit(succeeded(granted))
    assert found(served, granted.id).state is State.RUNNING
    assert _written(served) == []


def test_a_rollback_on_a_lost_connection_raises_nothing(served: SqlStore) -> None:
    transaction = served.begin()
    _write(transaction, 1)
    _kill(served, transaction)
    transaction.rollback()
    assert _written(served) == []


def test_a_long_transaction_keeps_no_claim_waiting(tmp_path: object, store_url: str) -> None:
    store = SqlStore(store_url, pool_size=1, pool_timeout=0.1)
    store.upgrade()
    transaction = store.begin()
    transaction.session.execute(text("SELECT 1"))
    try:
        job = new_job()
        store.enqueue([job])
        assert isinstance(store.claim(job.id, "worker", LONG), Granted)
    finally:
        transaction.rollback()
        store.close()
