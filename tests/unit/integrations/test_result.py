"""A body's value as the store keeps it."""

from __future__ import annotations

from celery import Celery
from celery.result import result_from_tuple

from celery_guard import GuardedTask
from celery_guard.integrations.celery.result import decode_result, encode_result


def test_a_handle_that_a_body_returns_is_kept_as_what_celery_makes_a_handle_of_again(app: Celery) -> None:
    @app.task(base=GuardedTask, name="add", shared=False)
    def add(x: int) -> int:
        return x

    handle = app.AsyncResult("next", parent=app.AsyncResult("first"))
    kept = decode_result(encode_result(add, handle, needed=True))
    again = result_from_tuple(kept, app=app)
    assert (again.id, again.parent.id) == ("next", "first")
