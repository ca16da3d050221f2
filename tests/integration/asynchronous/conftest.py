"""An app, and callers with each driver of SQLAlchemy's asyncio part."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from celery import Celery
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncSession

from celery_guard import (
    Contract,
    Guard,
    GuardedTask,
)
from celery_guard.testing.databases import empty

from .programs import Program, engine_of, gone

#: Nothing listens at port 1: nothing here needs the broker.
NOWHERE = "redis://127.0.0.1:1/0"

#: Which store each driver goes with.
DRIVERS = {
    "sqlite+aiosqlite": "sqlite",
    "postgresql+psycopg": "postgresql",
    "postgresql+asyncpg": "postgresql",
    "mysql+asyncmy": "mariadb",
}


@pytest.fixture(params=DRIVERS)
def driver(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


@pytest.fixture
def url(driver: str, request: pytest.FixtureRequest) -> str:
    found: str = request.getfixturevalue(f"{DRIVERS[driver]}_url")
    return found


@pytest.fixture
def app(url: str) -> Iterator[Celery]:
    app = Celery("async", broker=NOWHERE, backend=NOWHERE, set_as_current=False)
    app.guard = Guard(app, store=url)
    app.guard.store.upgrade()
    empty(url)
    yield app
    app.guard.store.close()
    app.close()


@pytest.fixture
def charge(app: Celery) -> Any:
    @app.task(base=GuardedTask, name="charge", shared=False, contract=Contract(key="order"))
    def charge(order: int, amount: int = 1) -> None: ...

    return charge


@pytest.fixture
def add(app: Celery) -> Any:
    @app.task(base=GuardedTask, name="add", shared=False)
    def add(x: int, y: int = 0) -> int:
        return x + y

    return add


@pytest.fixture(params=["session", "connection"])
def run(request: pytest.FixtureRequest, driver: str, url: str) -> Callable[..., Any]:
    """Run a coroutine function that is given a :class:`Program`; its writes so far are gone."""

    @asynccontextmanager
    async def program() -> AsyncIterator[Program]:
        engine = engine_of(driver, url)
        try:
            async with engine.begin() as connection:
                await connection.execute(text("CREATE TABLE IF NOT EXISTS async_order (id INTEGER PRIMARY KEY)"))
                await connection.execute(text("DELETE FROM async_order"))
            kind = AsyncSession(engine) if request.param == "session" else engine.connect()
            async with kind as transaction:
                await transaction.execute(text("SELECT 1"))  # a transaction has begun
                yield Program(transaction, transaction.begin_nested)
        finally:
            await gone(engine)

    def runs(scenario: Callable[[Program], Awaitable[Any]]) -> Any:
        async def once() -> Any:
            async with program() as caller:
                return await scenario(caller)

        return asyncio.run(once())

    return runs
