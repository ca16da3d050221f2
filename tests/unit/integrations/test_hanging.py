"""What hangs on a job is not lost to a store that is away while Celery sends it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from celery import Celery
from celery._state import _task_stack

from celery_guard.errors import StoreUnavailableError
from celery_guard.integrations.celery.hanging import once_it_can_be_written


class Away:
    """A store that comes back after so many tries."""

    def __init__(self, tries: int) -> None:
        self.tries = self.left = tries

    def __call__(self) -> str:
        if self.left:
            self.left -= 1
            raise StoreUnavailableError("away")
        return "written"


def nothing() -> None:
    """A body."""


@pytest.fixture
def running() -> Iterator[Any]:
    """Let a task of this name be what runs here, with this request."""
    app = Celery("hanging", broker="memory://", set_as_current=False)
    pushed: list[Any] = []

    def run(name: str = "member", **request: Any) -> None:
        app.finalize()
        task = app.tasks.get(name) or app.task(name=name, shared=False)(nothing)
        task.push_request(id="job-1", **request)
        _task_stack.push(task)
        pushed.append(task)

    yield run
    for task in pushed:
        _task_stack.pop()
        task.pop_request()
    app.close()


@pytest.mark.parametrize("given", [{"guard_tells": 3}, {"name": "celery.chord_unlock"}], ids=["telling", "unlocking"])
def test_what_celery_sends_by_itself_waits_for_the_store(running: Any, given: dict[str, Any]) -> None:
    running(**given)
    away = Away(3)
    assert once_it_can_be_written(away) == "written"
    assert away.left == 0


@pytest.mark.parametrize("given", [None, {}, {"guard_tells": None}], ids=["no task", "plain", "body"])
def test_whoever_else_sends_is_told_at_once(running: Any, given: dict[str, Any] | None) -> None:
    if given is not None:
        running(**given)
    away = Away(3)
    with pytest.raises(StoreUnavailableError, match="away"):
        once_it_can_be_written(away)
    assert away.left == 2
