"""The setting ``leaving``: the guard is being taken out, and calls are Celery's own again."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from celery import Celery

from celery_guard import GuardedTask, Payload
from celery_guard.integrations.celery.attempt import CeleryAttempt, current_attempt
from celery_guard.integrations.celery.runtime import runtime_of


class Order(Payload, version=1):
    number: int


@pytest.fixture
def app(make_app: Callable[..., Celery]) -> Celery:
    return make_app({"leaving": True})


@pytest.fixture
def plainly(app: Celery) -> list[str]:
    """The names of what went Celery's own way."""
    sent: list[str] = []
    runtime_of(app).sender._plain = lambda name, *args, **options: sent.append(name)
    return sent


@pytest.fixture
def add(app: Celery) -> Any:
    def add(x: int, y: int) -> int:
        return x + y

    return app.task(add, base=GuardedTask, name="add", shared=False)


def test_calls_are_celerys_and_leave_no_row(app: Celery, plainly: list[str], add: Any) -> None:
    add.delay(1, 2)
    add.si(1, 2).apply_async(countdown=60)
    add.map([(1, 2)]).delay()
    assert plainly == ["add", "add", "celery.map"]
    assert app.guard.store.jobs() == []


def test_what_goes_with_a_transaction_still_does_and_ends_when_it_is_sent(
    app: Celery, plainly: list[str], add: Any
) -> None:
    add.enqueue_many([(1, 2)])
    (job,) = app.guard.store.jobs()
    assert (job.kind.value, plainly) == ("carried", [])


def test_a_retry_of_a_job_that_has_a_row_is_the_guards(app: Celery, plainly: list[str], add: Any) -> None:
    class Running:
        id = "running"

    attempt = CeleryAttempt(app.guard._runtime, None, Running())  # type: ignore[arg-type]
    token = current_attempt.set(attempt)
    try:
        add.apply_async((1, 2), task_id="running")
    finally:
        current_attempt.reset(token)
    assert attempt.kept is not None
    assert (plainly, app.guard.store.jobs()) == ([], [])


def test_a_task_that_takes_payloads_stays_guarded(app: Celery, plainly: list[str]) -> None:
    def ship(order: Order) -> None: ...

    task = app.task(ship, base=GuardedTask, name="ship", shared=False)
    job = app.guard.store.job(task.delay(Order(number=1)).id)
    assert (job.kind.value, plainly) == ("run", [])
