"""Callers with an AsyncSession or an AsyncConnection, and what there is afterwards."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from celery import Celery
from sqlalchemy import event, text
from sqlalchemy.ext.asyncio import AsyncEngine
from sqlalchemy.ext.asyncio import create_async_engine as create
from sqlalchemy.pool import NullPool

INSERT = text("INSERT INTO async_order (id) VALUES (:id)")


def engine_of(driver: str, url: str, **options: Any) -> AsyncEngine:
    engine = create(f"{driver}:{url.partition(':')[2]}", poolclass=NullPool, **options)
    if driver.startswith("sqlite"):
        # SQLAlchemy's repair for savepoints on SQLite
        @event.listens_for(engine.sync_engine, "connect")
        def connected(connection: Any, record: Any) -> None:
            connection.isolation_level = None

        @event.listens_for(engine.sync_engine, "begin")
        def begun(connection: Any) -> None:
            connection.exec_driver_sql("BEGIN")

    return engine


async def gone(engine: AsyncEngine) -> None:
    await engine.dispose()
    await asyncio.sleep(0)  # a transport of asyncio's closes in the loop's next round


class Program:
    """A caller with an AsyncSession, or with an AsyncConnection."""

    def __init__(self, transaction: Any, nested: Callable[[], Any]) -> None:
        self.transaction = transaction
        self.savepoint = nested
        self.commit: Callable[[], Awaitable[None]] = transaction.commit
        self.rollback: Callable[[], Awaitable[None]] = transaction.rollback

    async def write(self, number: int) -> None:
        await self.transaction.execute(INSERT, {"id": number})


def jobs(app: Celery) -> set[str]:
    return {job.id for job in app.guard.store.jobs(limit=1000)}


async def orders(program: Program) -> list[int]:
    found = await program.transaction.execute(text("SELECT id FROM async_order ORDER BY id"))
    await program.rollback()
    return list(found.scalars())
