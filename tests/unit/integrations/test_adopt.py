"""A message that has no row: the row that it is given."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import pytest
from celery import Celery

from celery_guard import GuardedTask, KeyBusy
from celery_guard.flow.enqueue import enqueue
from celery_guard.integrations.celery.adopt import adopt
from celery_guard.integrations.celery.runtime import runtime_of
from celery_guard.job.row import NewJob
from celery_guard.job.state import State
from celery_guard.job.verdict import Busy, Enqueued, Granted


def test_a_message_that_is_adopted_is_published_by_no_relay_before_it_is_claimed(app: Celery) -> None:
    """Its message is here. A worker without the guard would run a second one, and no claim would stop it."""

    @app.task(base=GuardedTask, name="ship", shared=False)
    def ship(number: int) -> None: ...

    runtime, task = runtime_of(app), app.tasks["ship"]
    request: dict[str, Any] = {"id": "job-1", "args": [7], "kwargs": {}, "delivery_info": {"routing_key": "celery"}}
    task.push_request(**request)
    try:
        adopt(runtime, task, None)
    finally:
        task.pop_request()
    store = runtime.store
    assert store.take("relay", 10, timedelta(minutes=1)) == []
    job = store.job("job-1")
    assert job is not None
    assert job.state is State.SENT
    assert isinstance(store.claim("job-1", "worker", timedelta(minutes=1)), Granted)


def _adopt_while_others_take_its_key(monkeypatch: pytest.MonkeyPatch, task: Any, times: int) -> None:
    asked: list[str] = []

    def busy(store: Any, jobs: Sequence[NewJob]) -> list[Enqueued]:
        asked.append(jobs[0].id)
        return [Busy(jobs[0].id)] if len(asked) <= times else enqueue(store, jobs)

    monkeypatch.setattr("celery_guard.integrations.celery.adopt.enqueue", busy)
    monkeypatch.setattr("celery_guard.integrations.celery.adopt._PAUSE", 0)
    task.push_request(id="job-1", args=[7], kwargs={}, delivery_info={"routing_key": "celery"})
    try:
        adopt(runtime_of(task.app), task, None)
    finally:
        task.pop_request()


def test_a_message_whose_key_others_are_taking_waits_for_them(charge: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two workers are delivered the same message, and one finds the other at it: no reason to set it aside."""
    _adopt_while_others_take_its_key(monkeypatch, charge, 2)
    store = runtime_of(charge.app).store
    assert store.job("job-1") is not None
    assert store.quarantined() == []


def test_a_message_whose_key_others_take_for_long_is_set_aside(charge: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(KeyBusy):
        _adopt_while_others_take_its_key(monkeypatch, charge, 1000)
    store = runtime_of(charge.app).store
    assert store.job("job-1") is None
    [message] = store.quarantined()
    assert "enqueuing the same key" in message.reason
