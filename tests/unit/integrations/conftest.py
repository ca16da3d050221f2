"""What is stored of a job, and deliveries to its worker: for tests of an app without a server."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from celery import Celery

from celery_guard import Contract, GuardedTask


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
