"""What is stored may be damaged: by hand, by a disk, by another program. The job ends and says so; no delivery tries for ever."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from celery import Celery
from celery.app.task import Context

from celery_guard import Contract, GuardedTask, JobFailed
from celery_guard.job.row import StoredPayload, StoredResult
from celery_guard.job.state import Reason, State
from celery_guard.testing.conformance.builders import retried, succeeded
from celery_guard.testing.conformance.moves import claim, found, take

DAMAGES: dict[str, Callable[[StoredPayload], StoredPayload]] = {
    "headers cut off": lambda good: replace(good, headers=good.headers[:-5]),
    "headers without a task": lambda good: replace(good, headers="{}"),
    "headers of another kind": lambda good: replace(good, headers="[1]"),
    "body of noise": lambda good: replace(good, body=b"\xff\x00\xfe"),
    "body of another shape": lambda good: replace(good, body=b"[[1, 2]]"),
    "delivery cut off": lambda good: replace(good, delivery="{"),
    "delivery without a type": lambda good: replace(good, delivery="{}"),
}


@pytest.fixture
def runs() -> list[int]:
    return []


@pytest.fixture
def charge(app: Celery, runs: list[int]) -> Any:
    @app.task(base=GuardedTask, name="charge", shared=False, contract=Contract(key="order"))
    def charge(order: int) -> int:
        runs.append(order)
        return order

    return charge


def deliver(app: Celery, task: Any, id: str, message: StoredPayload) -> Any:
    """Call the task as a worker's tracer does for a message."""
    args, kwargs, embed = json.loads(message.body)
    headers = json.loads(message.headers)
    task.request_stack.push(
        Context({**headers, **embed, "headers": headers, "args": args, "kwargs": kwargs, "id": id, "called_directly": False, "is_eager": False})
    )  # fmt: skip
    try:
        return task(*args, **kwargs)
    finally:
        task.request_stack.pop()


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_stored_message_that_cannot_be_read_ends_its_job_and_says_so(
    app: Celery, charge: Any, runs: list[int], damage: str
) -> None:
    store = app.guard.store
    id = charge.delay(order=1).id
    first = store.payload(id)
    assert store.settle(retried(claim(store, id), payload=DAMAGES[damage](first)))
    with pytest.raises(JobFailed, match=r"The stored message of job .* cannot be read"):
        deliver(app, charge, id, first)
    row = found(store, id)
    assert (row.state, row.reason, runs) == (State.DEAD, Reason.FAILED, [])
    assert "generation 1) cannot be read" in row.failures[-1].message


def test_a_stored_result_that_cannot_be_read_ends_the_job_that_is_given_it(
    app: Celery, charge: Any, runs: list[int]
) -> None:
    store = app.guard.store
    holder = charge.delay(order=1).id
    follower = charge.apply_async((), {"order": 1}, group_id="in a canvas").id
    assert found(store, follower).holder == holder
    damaged = StoredResult(b"\xff", "application/json", "utf-8")
    assert store.settle(succeeded(claim(store, holder), result=damaged))
    assert [row.id for row in take(store)] == [follower]
    with pytest.raises(JobFailed, match=r"The stored result that job .* is given cannot be read"):
        deliver(app, charge, follower, store.payload(follower))
    row = found(store, follower)
    assert (row.state, row.reason, runs) == (State.DEAD, Reason.FAILED, [])
