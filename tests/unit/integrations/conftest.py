"""What is stored of a job, and deliveries to its worker: for tests of an app without a server."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from celery import Celery

from celery_guard import Contract, Guard, GuardedTask
from celery_guard.integrations.celery.send import Sender
from celery_guard.job.row import NewJob


@pytest.fixture
def app(make_app: Callable[..., Celery]) -> Celery:
    return make_app()


@pytest.fixture
def stored(app: Celery) -> Callable[[str], Any]:
    """What is stored of a job: (args, kwargs, embed), headers, delivery."""

    def read(id: str) -> tuple[Any, dict[str, Any], dict[str, Any]]:
        payload = app.guard.store.payload(id)
        return json.loads(payload.body), json.loads(payload.headers), json.loads(payload.delivery)

    return read


@pytest.fixture
def charge(app: Celery) -> Any:
    @app.task(base=GuardedTask, name="charge", shared=False, contract=Contract(key="order"))
    def charge(order: int, amount: int = 1, tenant: str | None = None) -> None: ...

    return charge


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The arguments of the calls that went all the way."""
    plain, seen = Sender.__call__, []

    def call(self: Sender, name: str, args: Any = None, kwargs: Any = None, *more: Any, **options: Any) -> Any:
        seen.append((args, kwargs))
        return plain(self, name, args, kwargs, *more, **options)

    monkeypatch.setattr(Sender, "__call__", call)
    return seen


@pytest.fixture
def make_task(make_app: Callable[..., Celery]) -> Callable[..., Any]:
    def make(contract: Contract | None = None, base: Any = GuardedTask, guard: Any = None, **conf: Any) -> Any:
        app = make_app({"key_secret": "a long random text", **(guard or {})}, **conf)

        @app.task(base=base, name="add", shared=False, contract=contract)
        def add(x: Any, y: Any = 2, tenant: str | None = None) -> None: ...

        return add

    return make


@pytest.fixture
def written(monkeypatch: pytest.MonkeyPatch) -> list[NewJob]:
    """The jobs that are written."""
    plain, jobs = Sender._write, []

    def write(self: Sender, new: Any, door: Any) -> Any:
        jobs.extend(new)
        return plain(self, new, door)

    monkeypatch.setattr(Sender, "_write", write)
    return jobs


@pytest.fixture
def shared(store_url: str) -> Iterator[Celery]:
    """An app whose store is on each database in turn."""
    app = Celery("shared", broker="memory://", set_as_current=False, task_always_eager=True)
    app.guard = Guard(app, store=store_url)
    app.guard.store.upgrade()
    yield app
    app.guard.store.close()
    app.close()
