"""What Celery's own options declare, and what they do not."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import celery
import pytest
from celery import Celery

from celery_guard import Contract, Guard, GuardedTask, Retry, Timing
from celery_guard.contract.contract import Effective
from celery_guard.errors import ContractError


class Base(GuardedTask):
    """A base class of the user's."""

    abstract = True
    max_retries = 7


def effective(app: Celery, **options: Any) -> Effective:
    @app.task(**{"base": GuardedTask, "name": "one", "shared": False, **options})
    def one(x: int = 1) -> None: ...

    contract: Effective = app.guard._runtime.contract_of(app.tasks["one"])
    return contract


def test_celerys_defaults_declare_nothing(app: Celery) -> None:
    found = effective(app)
    assert (found.retry.max_attempts, found.retry_declared, found.explicit_retries) == (1, False, 3)
    assert (found.timing.attempt, found.timing.deadline) == (None, None)


@pytest.mark.parametrize(("retries", "explicit"), [(5, 5), (0, 0), (None, None)])
def test_max_retries_bounds_what_the_body_asks_for(app: Celery, retries: int | None, explicit: int | None) -> None:
    found = effective(app, max_retries=retries)
    assert (found.explicit_retries, found.retry.max_attempts) == (explicit, 1)
    assert app.tasks["one"].max_retries == explicit


def test_a_base_class_of_the_users_declares_for_its_tasks(app: Celery) -> None:
    assert effective(app, base=Base).explicit_retries == 7


def test_autoretry_is_a_policy(app: Celery) -> None:
    found = effective(app, autoretry_for=(OSError,), max_retries=4, retry_backoff=2, retry_backoff_max=60)
    assert (found.retry.max_attempts, found.retry.base, found.retry.cap, found.retry.jitter) == (5, 2, 60, True)
    assert found.retry_declared


def test_limits_and_expiry_are_read_and_the_contracts_are_told_to_the_pool(app: Celery) -> None:
    found = effective(app, time_limit=30, soft_time_limit=20, expires=600)
    assert (found.timing.attempt, found.timing.soft) == (timedelta(seconds=30), timedelta(seconds=20))
    assert found.timing.deadline == timedelta(seconds=600)
    other = Celery("other", set_as_current=False)
    other.guard = Guard(other, store="sqlite://")
    effective(other, contract=Contract(timing=Timing(attempt=9, soft=4)))
    task = other.tasks["one"]
    assert (task.time_limit, task.soft_time_limit) == (9, 4)


@pytest.mark.skipif(celery.VERSION < (5, 5), reason="this Celery refuses no such limits")
def test_limits_that_celery_refuses_at_each_call_are_refused_there_and_not_at_import(app: Celery) -> None:
    effective(app, soft_time_limit=20, time_limit=10)
    with pytest.raises(ValueError, match="soft_time_limit must be less"):
        app.tasks["one"].delay()


@pytest.mark.parametrize(
    "options",
    [
        {"max_retries": 2, "contract": Contract(retry=Retry(max_attempts=9))},
        {"soft_time_limit": 20, "contract": Contract(timing=Timing(attempt=10))},
        {"contract": Contract(key="nobody")},
    ],
    ids=["two policies", "soft over hard", "key names no argument"],
)
def test_nonsense_is_refused_where_the_task_is_declared(app: Celery, options: dict[str, Any]) -> None:
    with pytest.raises(ContractError, match="one"):
        effective(app, **options)


def test_celerys_own_tasks_are_bounded_by_the_life_of_results() -> None:
    app = Celery("all", set_as_current=False, task_cls=GuardedTask)
    app.guard = Guard(app, store="sqlite://")
    app.conf.result_expires = 120
    found = app.guard._runtime.contract_of(app.tasks["celery.chord_unlock"])
    assert (found.explicit_retries, found.retry.within) == (None, timedelta(seconds=120))
