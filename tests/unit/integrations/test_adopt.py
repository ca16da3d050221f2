"""A message that has no row: the row that it is given."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from celery import Celery

from celery_guard import GuardedTask
from celery_guard.integrations.celery.adopt import adopt
from celery_guard.integrations.celery.runtime import runtime_of
from celery_guard.job.state import State
from celery_guard.job.verdict import Granted


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
