"""A pytest plug-in under which every task of Celery's own integration suite is guarded; no file of Celery's is changed.

``CELERY_GUARD_STORE`` names the store; its tables are there already.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import celery
import pytest
from celery import Celery

from celery_guard import GuardedTask
from celery_guard.integrations.celery.runtime import ATTRIBUTE
from celery_guard.testing.databases import empty

# `class Some(celery.Task)` in the suite's own module of tasks is a guarded class too
celery.Task = GuardedTask

#: How many jobs the store has seen, over all tests.
_seen = 0


@pytest.fixture(scope="session")
def celery_parameters() -> dict[str, Any]:
    """What ``Celery(...)`` is made with, for the worker's app and for each test's."""
    return {"task_cls": GuardedTask}


@pytest.fixture(scope="session")
def celery_worker_parameters() -> dict[str, Any]:
    """The job by which Celery asks whether a worker is up waits for its relay, a process that a busy machine starts in its own time."""
    return {"ping_task_timeout": 120}


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
