"""The command line on a guarded app whose store gives canned answers."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from celery import Celery
from click.testing import CliRunner, Result

from celery_guard import Contract, Guard, GuardedTask
from celery_guard.integrations.celery.runtime import runtime_of
from celery_guard.operate.cli.main import guard

from .shop import Canned, Run


@pytest.fixture
def app() -> Celery:
    app = Celery("shop", broker="memory://", set_as_current=False)
    Guard(app, store="postgresql+psycopg://shop:secret@db/shop")

    def charge(order_id: int) -> None: ...

    app.task(
        charge, name="shop.charge", base=GuardedTask, shared=False, contract=Contract(owner="payments", key="order_id")
    )
    return app


@pytest.fixture
def run(app: Celery) -> Run:
    """Type words at ``celery -A shop guard``; ``store`` is what the app's store answers."""

    def typed(*words: str, store: Canned | None = None) -> Result:
        runtime_of(app).__dict__["store"] = store or Canned()
        context = SimpleNamespace(app=app, no_color=False)
        return CliRunner().invoke(guard, list(words), obj=context, catch_exceptions=False)

    return typed
