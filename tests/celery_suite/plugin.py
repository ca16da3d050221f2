"""A pytest plug-in under which every task of Celery's own integration suite is guarded; no file of Celery's is changed.

``CELERY_GUARD_STORE`` names the store; its tables are there already.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from typing import Any

import celery
import pytest
from celery import Celery

from celery_guard import GuardedTask
from celery_guard.integrations.celery.runtime import ATTRIBUTE
from celery_guard.testing.databases import empty

from .expected import Expected

# `class Some(celery.Task)` in the suite's own module of tasks is a guarded class too
celery.Task = GuardedTask

#: How many jobs the store has seen, over all tests.
_seen = 0


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Run once what is expected to fail: Celery runs most tests up to six times, until one passes."""
    changed = Expected.read().changed
    for item in items:
        if item.nodeid.removeprefix("t/integration/") in changed:
            item.own_markers = [mark for mark in item.own_markers if mark.name != "flaky"]


@pytest.fixture(scope="session")
def celery_parameters() -> dict[str, Any]:
    """What ``Celery(...)`` is made with, for the worker's app and for each test's."""
    return {"task_cls": GuardedTask}


@pytest.fixture(scope="session")
def celery_worker_parameters() -> dict[str, Any]:
    """The job by which Celery asks whether a worker is up waits for its relay, a process that a busy machine starts in its own time."""
    return {"ping_task_timeout": 120}


@pytest.fixture(autouse=True)
def _counts_are_waited_for(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of 42 errbacks the suite waits for the first alone, and looks once for each of the others: they come, but not at one instant.

    Each is a job here, that is written, published and claimed. A count that is looked for once is waited for, to its first increment.
    """
    counted = getattr(request.module, "await_redis_count", None)
    if counted is None:
        return

    def waited(expected: int, redis_key: str = "redis-count", **given: Any) -> None:
        if given.get("timeout") == 0:
            until = time.monotonic() + 30
            with request.module.get_redis_connection() as connection:
                while connection.get(redis_key) is None and time.monotonic() < until:
                    time.sleep(0.05)
        counted(expected, redis_key=redis_key, **given)

    monkeypatch.setattr(request.module, "await_redis_count", waited)


@pytest.fixture(autouse=True)
def _jobs_of_one_test_only(celery_app: Celery) -> Iterator[None]:
    """The suite purges the broker between two tests; jobs that wait in the store have to go with what was purged.

    Each test has an app of its own; what its guard has opened is closed with it.
    """
    global _seen
    yield
    runtime = celery_app.__dict__.get(ATTRIBUTE)
    if runtime is not None and "store" in runtime.__dict__:
        _seen += sum(runtime.store.counts().values())
        empty(os.environ["CELERY_GUARD_STORE"])
        runtime.store.close()


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Say that the guard was there."""
    terminalreporter.write_line(f"guarded jobs: {_seen}")
