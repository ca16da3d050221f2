"""The setting ``leaving``: the guard is being taken out, and calls are Celery's own again."""

from __future__ import annotations

from collections.abc import Callable
from threading import Thread
from typing import Any

import pytest
from celery import Celery
from celery.app.task import Context

from celery_guard import GuardedTask, Payload
from celery_guard.integrations.celery.attempt import CeleryAttempt, current_attempt
from celery_guard.integrations.celery.runtime import runtime_of
from celery_guard.job.envelope import HEADER
from celery_guard.job.state import Reason, State
from celery_guard.testing.conformance.builders import LONG, new_job, retried
from celery_guard.testing.conformance.moves import found, start


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


def test_the_step_that_brings_a_replaced_jobs_id_back_goes_on_as_that_job(
    app: Celery, plainly: list[str], add: Any
) -> None:
    """``self.replace(chain)`` by a job that has a row: the row waits for the chain's last step, and has to hear of it."""
    store = app.guard.store
    granted = start(store, new_job(task="add"))
    assert store.settle(retried(granted, reason=Reason.HANDED_OVER, delay=LONG, charged=False, retried=False))
    add.apply_async((1, 2))
    add.apply_async((1, 2), task_id="another step")
    assert plainly == ["add", "add"]
    add.apply_async((3, 4), task_id=granted.id)
    assert plainly == ["add", "add"]
    row = found(store, granted.id)
    assert (row.state, row.reason, row.generation) == (State.PENDING, Reason.REPLACED, 1)


@pytest.mark.parametrize("order", ["guarded first", "plain first"])
def test_a_plain_delivery_beside_a_guarded_one_has_celerys_autoretry_and_the_guarded_one_has_not(
    app: Celery, monkeypatch: pytest.MonkeyPatch, order: str
) -> None:
    """In a pool of threads both are of one task, which is one object."""

    class Retried(Exception):
        pass

    def retry(*args: Any, **options: Any) -> None:
        raise Retried

    def flaky(runs: Callable[[], None]) -> None:
        runs()
        raise ConnectionError

    monkeypatch.setattr(GuardedTask, "retry", retry)
    monkeypatch.setattr(
        "celery_guard.integrations.celery.perform.perform",
        lambda runtime, task, request, body, args, kwargs: body(*args, **kwargs),
    )
    task = app.task(flaky, base=GuardedTask, name="flaky", shared=False, autoretry_for=(ConnectionError,))

    def deliver(guarded: bool, runs: Callable[[], None] = lambda: None) -> type[BaseException] | None:
        headers = {HEADER: "its row is in the store"} if guarded else {}
        task.request_stack.push(Context(id="one", called_directly=False, is_eager=False, headers=headers))
        try:
            task(runs)
        except (ConnectionError, Retried) as error:
            return type(error)
        finally:
            task.request_stack.pop()
        return None

    def both(first: bool) -> tuple[Any, Any]:
        """One delivery, in the middle of whose body another thread runs the other kind from its begin to its end."""
        others: list[Any] = []

        def run_the_other() -> None:
            thread = Thread(target=lambda: others.append(deliver(not first)))
            thread.start()
            thread.join()

        return deliver(first, run_the_other), others[0]

    expected = {True: ConnectionError, False: Retried}
    first = order == "guarded first"
    assert both(first) == (expected[first], expected[not first])
    assert both(not first) == (expected[not first], expected[first])
