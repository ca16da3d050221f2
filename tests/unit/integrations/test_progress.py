"""``self.job.progress`` and Celery's own ``update_state``, side by side in one body."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from celery import Celery

from celery_guard import GuardedTask
from celery_guard.testing.conformance.moves import found

from .test_damaged import deliver


def test_update_state_tells_the_result_backend_as_ever_and_progress_the_row(make_app: Callable[..., Celery]) -> None:
    app = make_app(result_backend="cache+memory://")
    seen: list[Any] = []

    @app.task(base=GuardedTask, name="load", shared=False, bind=True)
    def load(self: Any, rows: int) -> str:
        self.update_state(state="PROGRESS", meta={"current": 3, "total": rows})
        self.job.progress(3, rows, "page 3")
        handle = app.AsyncResult(self.request.id)
        seen.append((handle.state, handle.info))
        return "done"

    store = app.guard.store
    id = load.delay(rows=10).id
    assert deliver(app, load, id, store.payload(id)) == "done"
    assert seen == [("PROGRESS", {"current": 3, "total": 10})]
    assert str(found(store, id).progress) == "3 of 10 (30 %): page 3"


def test_a_job_that_is_run_at_once_has_its_progress_too(make_app: Callable[..., Celery]) -> None:
    app = make_app(task_always_eager=True)

    @app.task(base=GuardedTask, name="load", shared=False, bind=True)
    def load(self: Any) -> None:
        self.job.progress(2, 2)

    id = load.delay().id
    assert str(found(app.guard.store, id).progress) == "2 of 2 (100 %)"
