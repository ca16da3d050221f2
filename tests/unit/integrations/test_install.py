"""Whose app is guarded: not every app that a shared task is bound to."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from celery import Celery, Task

from celery_guard import Contract, Guard, GuardedTask
from celery_guard.errors import ContractError
from celery_guard.integrations.celery.runtime import runtime_of

TWO_APPS = """
from celery import Celery
from celery_guard import Contract, Guard, GuardedTask
one = Celery("one", broker="memory://")
Guard(one, store="sqlite:///guard.db")
@one.task(base=GuardedTask)
def guarded(): ...
two = Celery("two", broker="memory://")
@two.task
def plain(): ...
two.finalize()
worker = two.Worker(pool="solo", quiet=True)
print("worker", "two.guarded" in two.tasks or "__main__.guarded" in two.tasks)
"""


def test_a_worker_of_a_plain_app_starts_beside_a_guarded_one(tmp_path: Path) -> None:
    done = subprocess.run([sys.executable, "-c", TWO_APPS], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "worker True"
    assert "has no guard of its own" in done.stderr


def test_an_app_is_guarded_by_a_guard_or_by_a_store_in_its_configuration() -> None:
    plain, configured, guarded = (Celery(name, set_as_current=False) for name in ("plain", "configured", "guarded"))
    configured.conf.guard_store = "sqlite://"
    Guard(guarded)
    for app in (plain, configured, guarded):

        @app.task(base=GuardedTask, name="one", shared=False)
        def one() -> None: ...

        app.finalize()
    assert [runtime_of(app).meant for app in (plain, configured, guarded)] == [False, True, True]


def test_an_app_that_is_pickled_takes_its_guards_settings_along() -> None:
    """As for a child that is spawned: the app is made again, and its tasks bring the guard."""
    app = Celery("shop", broker="memory://", set_as_current=False)
    Guard(app, store="sqlite:///guard.db", lease=7, contracts={"one": Contract(owner="payments")})
    make, arguments = app.__reduce__()
    again = make(*arguments)
    assert (again.conf.guard_store, again.conf.guard_lease) == ("sqlite:///guard.db", 7)
    assert again.control_cls == Celery.control_cls

    @again.task(base=GuardedTask, name="one", shared=False)
    def one() -> None: ...

    again.finalize()
    runtime = runtime_of(again)
    assert (runtime.settings.store, runtime.settings.lease.total_seconds()) == ("sqlite:///guard.db", 7)
    assert runtime.contract_named("one").owner == "payments"


def test_a_task_that_takes_its_messages_past_the_tracer_is_refused_where_it_is_declared() -> None:
    class Several(Task):  # type: ignore[misc]
        def Strategy(self, task: Any, app: Any, consumer: Any) -> None: ...

    with pytest.raises(ContractError, match="Both: its `Strategy` takes messages") as refused:
        type("Both", (GuardedTask, Several), {})
    assert refused.value.code == "GUARD-102"
