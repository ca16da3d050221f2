"""``adelay`` and ``run_sync``, which write at once; and who may not enqueue in a transaction."""

from __future__ import annotations

import asyncio
import threading
from contextlib import suppress
from typing import Any

import pytest
from celery import Celery
from sqlalchemy.ext.asyncio import AsyncSession, async_scoped_session, async_sessionmaker
from sqlalchemy.ext.asyncio import create_async_engine as create

from celery_guard import (
    Accepted,
    Duplicate,
    KeyConflict,
    TransactionError,
    WrongDatabaseError,
)
from celery_guard.store import open_store
from celery_guard.testing.databases import database

from .programs import Program, engine_of, gone, jobs, orders

pytestmark = pytest.mark.integration


def test_adelay_writes_at_once_and_says_what_the_database_answered(app: Celery, charge: Any, run: Any) -> None:
    holder = charge.delay(1, 5)

    async def scenario(program: Program) -> Any:
        await program.write(1)
        async with app.guard.using(program.transaction):
            new = await charge.adelay(2)
            again = await charge.adelay(2)
            known = await charge.adelay(1, 5)
            with pytest.raises(KeyConflict):
                await charge.adelay(1, 6)
            many = await charge.aenqueue_many([[3], {"order": 1, "amount": 6}])
        assert new.answer == Accepted(new.id)
        assert (again.id, again.duplicate) == (new.id, True)
        assert isinstance(known.answer, Duplicate)
        assert known.id == holder.id
        assert type(many[1].answer).__name__ == "Conflict"
        assert jobs(app) == {holder.id}
        await program.commit()
        assert await orders(program) == [1]
        return {new.id, many[0].id}

    assert {holder.id} | run(scenario) == jobs(app)


def test_adelay_outside_a_transaction_commits_its_own_row_in_another_thread(
    app: Celery, charge: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    threads = []
    plain = app.guard.store.enqueue

    def enqueue(jobs: Any) -> Any:
        threads.append(threading.get_ident())
        return plain(jobs)

    monkeypatch.setattr(app.guard.store, "enqueue", enqueue)

    async def scenario() -> Any:
        handle = await charge.adelay(1)
        with pytest.raises(KeyConflict):
            await charge.aapply_async((1,), {"amount": 7}, countdown=5)
        return handle

    handle = asyncio.run(scenario())
    assert jobs(app) == {handle.id}
    assert threads
    assert threading.get_ident() not in threads


def test_delay_inside_run_sync_writes_at_once(app: Celery, charge: Any, run: Any) -> None:
    async def scenario(program: Program) -> Any:
        async with app.guard.using(program.transaction):
            handle = await program.transaction.run_sync(lambda _: charge.delay(1))
        assert handle.answer == Accepted(handle.id)
        other = await program.transaction.run_sync(lambda waits: charge.using(waits).delay(2))
        await program.commit()
        return {handle.id, other.id}

    assert run(scenario) == jobs(app)


# -- who may not ------------------------------------------------------------------------------------------------------


def test_another_database_is_refused_at_once_by_async_with_and_at_the_commit_by_with(
    app: Celery, charge: Any, driver: str, url: str, tmp_path: Any
) -> None:
    async def scenario(other: str) -> None:
        engine = engine_of(driver, other)
        async with AsyncSession(engine) as session:
            with pytest.raises(WrongDatabaseError):
                async with app.guard.using(session):
                    raise AssertionError("not reached")
            charge.using(session).delay(1)
            with pytest.raises(WrongDatabaseError):
                await session.commit()
            await session.rollback()
            with pytest.raises(WrongDatabaseError):
                await charge.using(session).adelay(1)
        await gone(engine)

    if driver.startswith("sqlite"):
        asyncio.run(scenario(f"sqlite:///{tmp_path / 'other.db'}"))
    else:
        with database(url) as other:
            asyncio.run(scenario(other))
    assert not jobs(app)


def test_a_driver_that_cannot_carry_a_job_is_refused_at_once(mariadb_url: str) -> None:
    pytest.importorskip("aiomysql")
    store = open_store(mariadb_url)
    session = AsyncSession(create(f"mysql+aiomysql:{mariadb_url.partition(':')[2]}"))
    with pytest.raises(TransactionError, match="asyncmy"):
        store.door(session)
    store.close()


def test_a_database_of_another_kind_is_refused_at_once(postgresql_url: str) -> None:
    store = open_store(postgresql_url)
    with pytest.raises(WrongDatabaseError, match="sqlite"):
        store.door(AsyncSession(create("sqlite+aiosqlite://")))
    store.close()


def test_a_scoped_session_is_the_session_of_its_task(app: Celery, charge: Any, driver: str, url: str) -> None:
    async def scenario() -> Any:
        engine = engine_of(driver, url)
        scoped = async_scoped_session(async_sessionmaker(engine), asyncio.current_task)
        handle = charge.using(scoped).delay(1)
        await scoped.commit()
        await scoped.remove()
        await gone(engine)
        return handle

    assert {asyncio.run(scenario()).id} == jobs(app)


def test_a_task_that_outlives_its_block_is_told_so(app: Celery, add: Any, run: Any) -> None:
    """It has a copy of the context, and would write into a transaction that nobody commits any more."""

    async def scenario(program: Program) -> Any:
        ended = asyncio.Event()

        async def background() -> None:
            await ended.wait()
            add.delay(2)

        async with app.guard.using(program.transaction):
            kept = add.delay(1)
            task = asyncio.create_task(background())
        await program.commit()
        ended.set()
        with pytest.raises(TransactionError, match="has ended"):
            await task
        return kept

    assert {run(scenario).id} == jobs(app)


def test_a_job_that_comes_while_the_transaction_commits_is_refused(app: Celery, add: Any, run: Any) -> None:
    """Two tasks share a session, which is wrong; the one that comes too late hears of it."""

    async def scenario(program: Program) -> set[str]:
        sent = [add.using(program.transaction).delay(0)]
        committing = asyncio.ensure_future(program.commit())
        while not committing.done():
            with suppress(TransactionError):
                sent.append(add.using(program.transaction).delay(1))
            await asyncio.sleep(0)
        await committing
        await program.commit()  # what came after it is of the next one
        return {handle.id for handle in sent}

    assert run(scenario) == jobs(app)


def test_plain_delay_in_a_running_loop_commits_its_own_row(app: Celery, add: Any) -> None:
    async def scenario() -> Any:
        return add.delay(1)

    assert {asyncio.run(scenario()).id} == jobs(app)
