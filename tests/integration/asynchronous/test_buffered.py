"""``delay`` in an asynchronous transaction: buffered, and written before that commits."""

from __future__ import annotations

from typing import Any

import pytest
from celery import Celery, chain
from sqlalchemy.exc import IntegrityError
from sqlalchemy.ext.asyncio import AsyncConnection

from celery_guard import (
    Accepted,
    Buffered,
    KeyBusy,
    KeyConflict,
    TransactionError,
)

from .programs import Program, engine_of, gone, jobs, orders

pytestmark = pytest.mark.integration


def test_a_buffered_job_goes_with_the_transaction(app: Celery, charge: Any, run: Any) -> None:
    async def scenario(program: Program) -> tuple[Any, Any]:
        await program.write(1)
        lost = charge.using(program.transaction).delay(1)
        await program.rollback()
        async with program.transaction.begin():
            await program.write(2)
            async with app.guard.using(program.transaction):
                kept = charge.delay(2)
            assert kept.answer == Buffered(kept.id)
            assert not jobs(app)
        assert await orders(program) == [2]
        return lost, kept

    _lost, kept = run(scenario)
    assert jobs(app) == {kept.id}
    assert kept.answer == Accepted(kept.id)
    assert not kept.duplicate
    assert app.guard.store.payload(kept.id) is not None


def test_a_session_begins_its_transaction_by_itself_and_a_connection_says_that_it_has_none(
    app: Celery, charge: Any, run: Any
) -> None:
    async def scenario(program: Program) -> None:
        await program.rollback()
        if isinstance(program.transaction, AsyncConnection):
            with pytest.raises(TransactionError, match="no transaction"):
                charge.using(program.transaction).delay(1)
            return
        charge.using(program.transaction).delay(1)
        await program.commit()
        assert len(jobs(app)) == 1

    run(scenario)


def test_a_canvas_is_buffered_with_what_has_no_guard(app: Celery, add: Any, run: Any) -> None:
    @app.task(name="plain", shared=False, ignore_result=True)
    def plain(x: int) -> None: ...

    async def scenario(program: Program) -> tuple[Any, Any]:
        with app.guard.using(program.transaction):
            sent = chain(add.s(1), add.s(2)).delay(), plain.delay(3)
        assert not jobs(app)
        await program.commit()
        return sent

    chained, carried = run(scenario)
    assert jobs(app) == {chained.parent.id, carried.id}


def test_a_savepoint_that_is_rolled_back_takes_its_jobs_with_it_and_no_others(app: Celery, add: Any, run: Any) -> None:
    async def scenario(program: Program) -> list[Any]:
        send = add.using(program.transaction).delay
        kept = [send(1)]
        async with program.savepoint() as savepoint:
            send(2)
            await program.write(2)
            async with program.savepoint():
                send(3)
            await savepoint.rollback()
        kept.append(send(4))
        async with program.savepoint():
            kept.append(send(5))
        async with program.savepoint() as unused:
            # a session has not even set this savepoint when it is given up
            send(6)
            await unused.rollback()
        kept.append(send(7))
        await program.commit()
        assert await orders(program) == []
        return kept

    assert {handle.id for handle in run(scenario)} == jobs(app)


def test_what_was_written_in_a_savepoint_before_it_was_rolled_back_is_written_again(
    app: Celery, add: Any, run: Any
) -> None:
    async def scenario(program: Program) -> Any:
        kept = add.using(program.transaction).delay(1)
        async with program.savepoint() as outer:
            async with program.savepoint():
                add.using(program.transaction).delay(2)
            # a session has written both by now
            await outer.rollback()
        await program.commit()
        return kept

    assert {run(scenario).id} == jobs(app)


def test_a_savepoint_that_was_open_before_anybody_enqueued_takes_its_jobs_with_it(
    app: Celery, add: Any, run: Any
) -> None:
    async def scenario(program: Program) -> Any:
        async with program.savepoint() as savepoint:
            add.using(program.transaction).delay(1)
            await savepoint.rollback()
        kept = add.using(program.transaction).delay(2)
        await program.commit()
        return kept

    assert {run(scenario).id} == jobs(app)


def test_a_failed_statement_inside_a_savepoint_costs_no_job_outside_it(app: Celery, add: Any, run: Any) -> None:
    async def scenario(program: Program) -> Any:
        await program.write(1)
        kept = add.using(program.transaction).delay(1)
        with pytest.raises(IntegrityError):  # noqa: PT012
            async with program.savepoint():
                add.using(program.transaction).delay(2)
                await program.write(1)
        await program.commit()
        assert await orders(program) == [1]
        return kept

    assert {run(scenario).id} == jobs(app)


def test_a_buffered_duplicate_follows_the_holder_under_its_own_id(app: Celery, charge: Any, run: Any) -> None:
    """Its id has been given away, so it has to be the id of something."""

    async def scenario(program: Program) -> list[Any]:
        handles = [charge.using(program.transaction).delay(1) for _ in range(2)]
        await program.commit()
        return handles

    first, second = run(scenario)
    assert (first.duplicate, second.duplicate) == (False, True)
    assert second.answer == Accepted(second.id, holder=first.id)
    assert jobs(app) == {first.id, second.id}


def test_a_conflict_fails_the_commit_and_nothing_of_the_transaction_is_kept(app: Celery, charge: Any, run: Any) -> None:
    holder = charge.delay(1, 5)

    async def scenario(program: Program) -> None:
        await program.write(1)
        charge.using(program.transaction).delay(2)
        charge.using(program.transaction).delay(1, 6)
        with pytest.raises(KeyConflict):
            await program.commit()
        with pytest.raises(Exception, match=r"already accepted|accepted before|rollback|inactive"):
            await program.commit()
        await program.rollback()
        await program.write(2)
        await program.commit()
        assert await orders(program) == [2]

    run(scenario)
    assert jobs(app) == {holder.id}


def test_a_conflict_at_the_end_of_a_block_rolls_the_transaction_back(app: Celery, charge: Any, run: Any) -> None:
    holder = charge.delay(1, 5)

    async def scenario(program: Program) -> None:
        await program.rollback()
        with pytest.raises(KeyConflict):  # noqa: PT012
            async with program.transaction.begin():
                await program.write(1)
                charge.using(program.transaction).delay(1, 6)
        async with program.transaction.begin():
            await program.write(2)
        assert await orders(program) == [2]

    run(scenario)
    assert jobs(app) == {holder.id}


def test_a_key_that_is_being_taken_fails_the_commit(app: Celery, charge: Any, run: Any, driver: str, url: str) -> None:
    if not driver.startswith("postgresql"):
        pytest.skip("these databases wait for the other transaction")

    async def scenario(program: Program) -> None:
        engine = engine_of(driver, url)
        async with engine.connect() as other, other.begin() as theirs:
            await charge.using(other).adelay(1)
            await program.write(1)
            charge.using(program.transaction).delay(1)
            with pytest.raises(KeyBusy):
                await program.commit()
            await program.rollback()
            await theirs.rollback()
        await gone(engine)
        assert await orders(program) == []

    run(scenario)
    assert not jobs(app)


def test_a_conflict_in_a_savepoint_of_a_session_leaves_the_rest_usable(app: Celery, charge: Any, run: Any) -> None:
    holder = charge.delay(1, 5)

    async def scenario(program: Program) -> Any:
        if isinstance(program.transaction, AsyncConnection):
            return None
        await program.write(1)
        kept = charge.using(program.transaction).delay(2)
        with pytest.raises(KeyConflict):  # noqa: PT012
            async with program.savepoint():
                await program.write(2)
                charge.using(program.transaction).delay(1, 6)
        await program.commit()
        assert await orders(program) == [1]
        return kept

    kept = run(scenario)
    assert jobs(app) == {holder.id} | ({kept.id} if kept else set())


def test_a_commit_of_the_root_with_an_open_savepoint_writes_everything(app: Celery, add: Any, run: Any) -> None:
    async def scenario(program: Program) -> list[Any]:
        await program.rollback()
        root = await program.transaction.begin()
        handles = [add.using(program.transaction).delay(1)]
        await program.savepoint()
        handles.append(add.using(program.transaction).delay(2))
        await root.commit()
        return handles

    assert {handle.id for handle in run(scenario)} == jobs(app)


def test_one_transaction_after_the_other_keeps_its_own_jobs(app: Celery, add: Any, run: Any) -> None:
    async def scenario(program: Program) -> list[Any]:
        kept = []
        for number in range(4):
            await program.write(number)
            handle = add.using(program.transaction).delay(number)
            if number % 2:
                await program.commit()
                kept.append(handle)
            else:
                await program.rollback()
        assert await orders(program) == [1, 3]
        return kept

    assert {handle.id for handle in run(scenario)} == jobs(app)
