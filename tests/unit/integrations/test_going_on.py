"""A job that is to run again, and that another delivery has brought to its end before Celery's result backend hears of it."""

from __future__ import annotations

import json
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from celery import Celery, states
from celery.app.trace import build_tracer
from celery.backends.cache import CacheBackend
from celery.exceptions import Ignore

from celery_guard import GuardedTask
from celery_guard.errors import StoreUnavailableError
from celery_guard.job.state import State
from celery_guard.testing.conformance.moves import found, take


class SlowBackend(CacheBackend):  # type: ignore[misc]
    """Something happens before it stores that a job runs again. It keeps no success, as Celery's for databases did before 5.7."""

    meanwhile: Callable[[], object] = staticmethod(lambda: None)

    def mark_as_retry(self, *args: Any, **kwargs: Any) -> Any:
        meanwhile, self.meanwhile = self.meanwhile, lambda: None
        meanwhile()
        return super().mark_as_retry(*args, **kwargs)

    def _get_task_meta_for(self, task_id: str) -> Any:
        """Before it stores anything it is told that nothing is stored yet."""
        return {"status": states.PENDING, "result": None}

    def stored(self, task_id: str) -> tuple[str, Any]:
        meta = super()._get_task_meta_for(task_id)
        return meta["status"], meta["result"]


@pytest.fixture
def backend(app: Celery) -> SlowBackend:
    return SlowBackend(app=app, url="memory://")


@pytest.fixture
def task(app: Celery, backend: SlowBackend) -> Any:
    @app.task(base=GuardedTask, bind=True, name="asks", shared=False)
    def asks(self: Any, then: str) -> str:
        if not self.request.retries:
            raise self.retry(countdown=0)
        if then == "fails":
            raise ValueError("no")
        if then == "says nothing":
            raise Ignore
        return then

    asks.backend = backend
    app.finalize()
    return asks


def deliver(task: Any, id: str) -> None:
    """Have Celery's own tracer run the message that is stored."""
    message = task.app.guard.store.payload(id)
    args, kwargs, embed = json.loads(message.body)
    headers = json.loads(message.headers)
    request = {**headers, **embed, "headers": headers, "hostname": "w@here", "is_eager": False}
    build_tracer(task.name, task, app=task.app)(id, args, kwargs, request)


def elsewhere(work: Callable[..., object], *given: Any) -> None:
    """In another thread, where no task is running."""
    with ThreadPoolExecutor(1) as pool:
        pool.submit(work, *given).result(30)


def cancel(task: Any, id: str) -> None:
    """Cancel the job, and have a delivery tell of it."""
    assert task.app.guard.store.cancel(id).answer == "cancelled"
    assert [row.id for row in take(task.app.guard.store)] == [id]
    deliver(task, id)


@pytest.mark.parametrize(
    ("then", "meanwhile", "state", "said"),
    [
        ("fails", deliver, states.FAILURE, "JobFailed('ValueError: no', 'ValueError', 'failed')"),
        ("done", deliver, states.SUCCESS, "'done'"),
        ("done", cancel, states.REVOKED, "TaskRevokedError('cancelled')"),
        ("says nothing", deliver, states.RETRY, "Retry()"),
    ],
    ids=["died", "succeeded", "cancelled", "ended in silence"],
)
def test_the_end_of_a_job_is_the_last_that_the_result_backend_is_told(
    task: Any, backend: SlowBackend, then: str, meanwhile: Callable[..., object], state: str, said: str
) -> None:
    id = task.delay(then).id
    backend.meanwhile = lambda: elsewhere(meanwhile, task, id)
    deliver(task, id)
    assert found(task.app.guard.store, id).state is not State.PENDING
    now, value = backend.stored(id)
    assert now == state
    if state != states.RETRY:
        assert repr(value) == said


def test_a_job_that_still_waits_is_to_run_again(task: Any, backend: SlowBackend) -> None:
    id = task.delay("done").id
    deliver(task, id)
    assert (found(task.app.guard.store, id).state, backend.stored(id)[0]) == (State.PENDING, states.RETRY)
    deliver(task, id)
    assert backend.stored(id) == (states.SUCCESS, "done")


def test_that_it_cannot_be_looked_at_is_no_trouble_of_the_job(
    task: Any, backend: SlowBackend, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def away(id: str) -> None:
        raise StoreUnavailableError("away")

    id = task.delay("done").id
    backend.meanwhile = lambda: monkeypatch.setattr(task.app.guard.store, "outcome", away)
    deliver(task, id)
    assert (found(task.app.guard.store, id).state, backend.stored(id)[0]) == (State.PENDING, states.RETRY)
    assert "whether it has ended since could not be looked at" in caplog.text
