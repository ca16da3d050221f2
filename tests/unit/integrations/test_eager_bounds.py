"""In eager mode nobody waits between two runs, so what has no bound of its own is given one."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from celery import Celery

from celery_guard import Contract, GuardedTask, JobFailed, Retry
from celery_guard.integrations.celery.eager import MOST_RUNS
from celery_guard.job.state import Reason, State


@pytest.fixture
def app(make_app: Callable[..., Celery]) -> Celery:
    return make_app(task_always_eager=True)


def end(app: Celery, id: str) -> tuple[State, Reason | None, int]:
    job = app.guard.store.job(id)
    assert job is not None
    return job.state, job.reason, job.attempts


def test_a_body_that_asks_for_another_run_without_end_is_told_so(app: Celery) -> None:
    @app.task(base=GuardedTask, shared=False, bind=True, max_retries=None)
    def poll(self: Any) -> None:
        raise self.retry(exc=OSError("not there yet"), countdown=60)

    result = poll.apply()
    with pytest.raises(
        JobFailed, match="ran 100 times in eager mode and asks for one run more; found max_retries=None"
    ):
        result.get()
    assert isinstance(result.result.__cause__, OSError)
    assert end(app, result.id) == (State.DEAD, Reason.EXHAUSTED, MOST_RUNS)


def test_a_policy_without_a_bound_of_count_has_one_here(app: Celery) -> None:
    @app.task(
        base=GuardedTask, shared=False, contract=Contract(retry=Retry(max_attempts=None, within=timedelta(days=1)))
    )
    def fetch() -> None:
        raise ConnectionError("no answer")

    result = fetch.apply()
    assert str(result.result) == "no answer"
    assert end(app, result.id) == (State.DEAD, Reason.EXHAUSTED, MOST_RUNS)


def test_a_bound_of_its_own_is_kept(app: Celery) -> None:
    @app.task(base=GuardedTask, shared=False, bind=True, max_retries=MOST_RUNS + 5)
    def long(self: Any) -> int:
        if self.request.retries < MOST_RUNS + 5:
            raise self.retry()
        return int(self.request.retries)

    assert long.delay().get() == MOST_RUNS + 5
