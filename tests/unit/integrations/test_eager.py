"""Eager mode: the same journey as in a worker, on the caller's connection, without a broker, a relay or a worker."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from celery import Celery, chain, chord, group
from celery.exceptions import AlwaysEagerIgnored, Ignore, Reject
from celery.result import EagerResult
from sqlalchemy import Engine, create_engine, event, text
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import Session
from sqlalchemy.pool import NullPool

from celery_guard import (
    Contract,
    Guard,
    GuardedTask,
    KeyConflict,
    PayloadError,
    PayloadTooLargeError,
    Retry,
    TransactionError,
    current_job,
)
from celery_guard.job.verdict import Accepted


@pytest.fixture
def app(make_app: Callable[..., Celery]) -> Celery:
    return make_app(task_always_eager=True)


def task(app: Celery, **options: Any) -> Any:
    return app.task(base=GuardedTask, shared=False, **options)


def row(app: Celery, id: str) -> Any:
    found = app.guard.store.job(id)
    assert found is not None
    return found


@pytest.fixture
def shop(shared: Celery) -> Iterator[Engine]:
    """The user's own connections to the store's database, with savepoints as SQLAlchemy repairs them for SQLite."""
    engine = create_engine(shared.guard.settings.store, poolclass=NullPool)
    if engine.dialect.name == "sqlite":
        event.listen(engine, "connect", lambda connection, _: setattr(connection, "isolation_level", None))
        event.listen(engine, "begin", lambda connection: connection.exec_driver_sql("BEGIN"))
    with engine.begin() as connection:
        connection.execute(text("CREATE TABLE IF NOT EXISTS eager_order (id INTEGER PRIMARY KEY)"))
        connection.execute(text("DELETE FROM eager_order"))
    yield engine
    engine.dispose()


def orders(shop: Engine) -> list[int]:
    with shop.connect() as connection:
        return list(connection.execute(text("SELECT id FROM eager_order ORDER BY id")).scalars())


def test_a_call_is_a_row_that_is_claimed_run_and_settled(app: Celery) -> None:
    @task(app, bind=True)
    def add(self: Any, x: int, y: int) -> int:
        assert current_job() is self.job
        assert self.job.id == self.request.id
        assert row(app, self.job.id).state.value == "running"
        assert self.request.is_eager
        self.job.check()
        return x + y

    for result in (add.delay(1, 2), add.apply((1,), {"y": 2}), add.apply_async(kwargs={"x": 1, "y": 2}, countdown=60)):
        assert isinstance(result, EagerResult)
        assert result.get() == 3
        assert result.answer == Accepted(result.id)
        job = row(app, result.id)
        assert (job.state.value, job.attempts, job.told) == ("succeeded", 1, True)


def test_a_failure_is_a_dead_letter_and_raised_where_celery_raises_it(app: Celery) -> None:
    heard = []

    class Loud(GuardedTask):
        abstract = True

        def on_dead(self, job_id: str, error: BaseException) -> None:
            heard.append((job_id, repr(error)))

    @app.task(base=Loud, shared=False)
    def fails() -> None:
        raise ValueError("no")

    result = fails.delay()
    assert (result.state, type(result.result)) == ("FAILURE", ValueError)
    job = row(app, result.id)
    assert (job.state.value, job.reason.value) == ("dead", "failed")
    assert job.failures[0].message == "no"
    assert heard == [(result.id, "ValueError('no')")]
    with pytest.raises(ValueError, match="no"):
        fails.apply(throw=True)
    app.conf.task_eager_propagates = True
    with pytest.raises(ValueError, match="no"):
        fails.delay()


def test_a_retry_by_the_contract_is_made_at_once_and_never_escapes(app: Celery) -> None:
    app.conf.task_eager_propagates = True
    seen = []

    @task(app, bind=True, contract=Contract(retry=Retry(max_attempts=3, base=60, cap=60)))
    def flaky(self: Any, failures: int) -> int:
        seen.append((self.job.attempt, self.request.retries, self.job.fence))
        if self.job.attempt <= failures:
            raise ConnectionError("not yet")
        return int(self.job.attempt)

    assert flaky.delay(2).get() == 3
    assert seen == [(1, 0, 1), (2, 1, 2), (3, 2, 3)]
    with pytest.raises(ConnectionError, match="not yet"):
        flaky.delay(9)
    dead = [job for job in app.guard.store.jobs() if job.state.value == "dead"]
    assert [(job.attempts, job.reason.value) for job in dead] == [(3, "exhausted")]


def test_a_retry_of_the_body_is_made_at_once_with_its_arguments_and_bounds(app: Celery) -> None:
    @task(app, bind=True, max_retries=2)
    def again(self: Any, n: int) -> int:
        if n < 3:
            raise self.retry((n + 1,), countdown=60)
        return n

    @task(app, bind=True, max_retries=2)
    def for_ever(self: Any) -> None:
        raise self.retry(exc=ValueError("no"), countdown=60)

    result = again.delay(1)
    assert (result.get(), row(app, result.id).generation, row(app, result.id).retries) == (3, 2, 2)
    result = for_ever.delay()
    assert (result.state, type(result.result)) == ("FAILURE", ValueError)
    assert (row(app, result.id).state.value, row(app, result.id).attempts) == ("dead", 3)


def test_autoretry_goes_the_same_way(app: Celery) -> None:
    calls = []

    @task(app, autoretry_for=(OSError,), retry_backoff=True, max_retries=5)
    def auto() -> int:
        calls.append(1)
        if len(calls) < 3:
            raise OSError("not yet")
        return len(calls)

    assert auto.delay().get() == 3


def test_a_retry_whose_message_is_too_large_ends_the_job(make_app: Callable[..., Celery]) -> None:
    app = make_app({"payload_limit": 4096}, task_always_eager=True)

    @task(app, bind=True)
    def grows(self: Any, words: str) -> None:
        raise self.retry((words * 5000,))

    result = grows.delay("x")
    assert isinstance(result.result, PayloadTooLargeError)
    assert (row(app, result.id).state.value, row(app, result.id).attempts) == ("dead", 1)


def test_what_a_worker_would_refuse_is_refused(app: Celery) -> None:
    @task(app, contract=Contract(key="order"))
    def charge(order: int, amount: Any = 1) -> str:
        return f"{order} {amount}"

    with pytest.raises(TypeError):
        charge.delay(1, 2, 3)
    with pytest.raises(PayloadError, match=r"args\[1\]"):
        charge.delay(1, {1: 2})
    first = charge.delay(1, 5)
    again = charge.delay(1, 5)
    assert (again.id, again.duplicate, again.get()) == (first.id, True, "1 5")
    with pytest.raises(KeyConflict):
        charge.delay(1, 6)
    assert len(app.guard.store.jobs()) == 1


def test_a_duplicate_of_a_dead_job_runs_since_its_key_is_free(app: Celery) -> None:
    @task(app, contract=Contract(key="order"))
    def charge(order: int) -> None:
        raise ValueError(order)

    assert charge.delay(1).id != charge.delay(1).id


def test_canvases_run_as_celery_runs_them(app: Celery) -> None:
    linked = []

    @task(app)
    def add(x: int, y: int) -> int:
        return x + y

    @task(app)
    def total(values: list[int]) -> int:
        return sum(values)

    @task(app)
    def note(value: int) -> None:
        linked.append(value)

    assert chain(add.s(1, 2), add.s(3)).delay().get() == 6
    assert group(add.s(n, n) for n in range(3)).delay().get() == [0, 2, 4]
    assert chord([add.s(n, n) for n in range(3)], total.s()).delay().get() == 6
    add.apply_async((1, 2), link=note.s())
    assert linked == [3]
    assert {job.state.value for job in app.guard.store.jobs()} == {"succeeded"}


def test_many_run_one_after_the_other_and_what_their_bodies_send_does_too(app: Celery) -> None:
    @task(app)
    def inner(x: int) -> int:
        return x

    @task(app)
    def outer(x: int) -> Any:
        with pytest.warns(AlwaysEagerIgnored):  # by name it is sent, as ever
            app.send_task(inner.name, (x,))
        return inner.delay(x).get(disable_sync_subtasks=False)

    assert [result.get() for result in outer.enqueue_many([[1], [2]])] == [1, 2]
    states = [job.state.value for job in app.guard.store.jobs()]
    assert sorted(states) == ["pending"] * 2 + ["succeeded"] * 4
    children = {job.parent_id for job in app.guard.store.jobs()} - {None}
    assert len(children) == 2


def test_replace_goes_on_inside_the_job(app: Celery) -> None:
    @task(app, bind=True)
    def other(self: Any, x: int) -> Any:
        return x, self.job.id

    @task(app, bind=True)
    def first(self: Any, x: int) -> Any:
        return self.replace(other.si(x + 1))

    result = first.apply((1,))  # under delay Celery refuses to wait for the replacement
    assert result.get() == (2, result.id)
    assert [job.id for job in app.guard.store.jobs()] == [result.id]


@pytest.mark.parametrize("way", ["ignore", "reject", "requeue", "interrupt", "exit"])
def test_other_ways_out_of_a_body(app: Celery, way: str) -> None:
    raised = {
        "ignore": Ignore("me"), "reject": Reject("no"), "requeue": Reject("no", requeue=True),
        "interrupt": KeyboardInterrupt(), "exit": SystemExit(3),
    }[way]  # fmt: skip

    @task(app)
    def body() -> None:
        raise raised

    if way in ("interrupt", "exit"):
        with pytest.raises(type(raised)):
            body.delay()
        return
    result = body.delay()
    assert result.state == ("IGNORED" if way == "ignore" else "FAILURE")
    assert row(app, result.id).state.value == ("succeeded" if way == "ignore" else "dead")


# -- in a transaction of the caller's -----------------------------------------------------------------------------------


def test_an_eager_job_is_part_of_the_callers_transaction(shared: Celery, shop: Engine) -> None:
    """SQLite has one writer: had the job gone another way than through that transaction, it would have waited for its end."""

    @task(shared, bind=True, contract=Contract(retry=Retry(max_attempts=2, base=60, cap=60)))
    def flaky(self: Any) -> int:
        self.job.check()
        if self.job.attempt < 2:
            raise ConnectionError("not yet")
        return int(self.job.attempt)

    @task(shared)
    def fails() -> None:
        raise ValueError("no")

    with Session(shop) as session:
        session.execute(text("INSERT INTO eager_order (id) VALUES (1)"))
        result, failed = flaky.using(session).delay(), fails.using(session).delay()
        assert (result.get(), failed.state) == (2, "FAILURE")
        assert shared.guard.store.jobs() == []
        session.rollback()
    assert shared.guard.store.jobs() == []
    with Session(shop) as session, shared.guard.using(session):
        session.execute(text("INSERT INTO eager_order (id) VALUES (2)"))
        result, failed = flaky.delay(), fails.delay()
        session.commit()
    assert (row(shared, result.id).state.value, row(shared, result.id).attempts) == ("succeeded", 2)
    assert row(shared, failed.id).state.value == "dead"
    assert orders(shop) == [2]


def test_a_bodys_own_writes_are_a_savepoint_of_the_callers_transaction(shared: Celery, shop: Engine) -> None:
    insert = text("INSERT INTO eager_order (id) VALUES (:id)")

    @task(shared)
    def child() -> None: ...

    @task(shared, bind=True)
    def writes(self: Any, number: int, fail: bool) -> None:
        self.job.transaction().execute(insert, {"id": number})
        child.delay()
        if fail:
            raise ValueError("no")

    with Session(shop) as session, shared.guard.using(session):
        session.execute(insert, {"id": 1})
        writes.delay(2, fail=False)
        writes.delay(3, fail=True)
        session.commit()
    assert orders(shop) == [1, 2]
    writes.delay(4, fail=False)
    writes.delay(5, fail=True)
    assert orders(shop) == [1, 2, 4]


def test_an_eager_job_in_an_asynchronous_transaction_is_awaited(app: Celery) -> None:
    pytest.importorskip("aiosqlite")

    @task(app, bind=True)
    def add(self: Any, x: int) -> int:
        self.job.check()
        return x + 1

    async def scenario() -> None:
        engine = create_async_engine(app.guard.settings.store.replace("sqlite:", "sqlite+aiosqlite:"))
        async with AsyncSession(engine) as session, app.guard.using(session):
            with pytest.raises(TransactionError, match="adelay"):
                add.delay(1)
            result = await add.adelay(1)
            assert result.get() == 2
            assert app.guard.store.jobs() == []
            await session.commit()
            assert row(app, result.id).state.value == "succeeded"
        await engine.dispose()

    asyncio.run(scenario())


# -- without a store ------------------------------------------------------------------------------------------------------


def test_without_a_store_an_eager_call_is_celerys_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CELERY_GUARD_STORE", raising=False)
    app = Celery("none", broker="memory://", set_as_current=False)
    Guard(app)

    @task(app, bind=True, max_retries=2)
    def body(self: Any, x: int) -> Any:
        assert self.request.id
        if self.request.retries < 2:
            raise self.retry(countdown=60)
        with pytest.raises(RuntimeError, match="without a store"):
            _ = self.job
        return x, {1, 2}

    assert body.apply((1,)).get() == (1, {1, 2})
    app.conf.task_always_eager = True
    assert body.delay(2).get() == (2, {1, 2})
    app.close()


def test_a_store_that_has_no_tables_is_said_so_instead_of_running_without(tmp_path: Path) -> None:
    from celery_guard import StoreSchemaError

    app = Celery("bare", broker="memory://", set_as_current=False, task_always_eager=True)
    guard = Guard(app, store=f"sqlite:///{tmp_path / 'bare.db'}")

    @task(app)
    def body() -> None: ...

    with pytest.raises(StoreSchemaError):
        body.delay()
    guard.store.close()
    app.close()
