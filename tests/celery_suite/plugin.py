"""Celery's own integration suite, with every task of its apps guarded: no file of Celery's is changed.

Loaded with ``-p tests.celery_suite.plugin``. ``CELERY_GUARD_STORE`` names the store; its tables are there already.
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

# `class Some(celery.Task)` in the suite's own task module is a guarded class too; nobody else imports the name after this.
celery.Task = GuardedTask


@pytest.fixture(scope="session")
def celery_parameters() -> dict[str, Any]:
    """What ``Celery(...)`` is made with, for the worker's app and for each test's."""
    return {"task_cls": GuardedTask}


@pytest.fixture(autouse=True)
def _rows_of_one_test_only() -> Iterator[None]:
    """The suite purges the broker between two tests; jobs that wait in the store have to go with it."""
    yield
    empty(os.environ["CELERY_GUARD_STORE"])


@pytest.fixture
def celery_app(celery_app: Celery) -> Iterator[Celery]:
    """Each test has an app of its own; what its guard has opened is closed with it."""
    yield celery_app
    runtime = celery_app.__dict__.get(ATTRIBUTE)
    if runtime is not None and "store" in runtime.__dict__:
        runtime.store.close()
