"""``map``, ``starmap`` and ``chunks`` of a guarded task: one message, for a task that calls the body once an item.

Celery has two tasks of its own for that, and they are everybody's: a guarded task's items go to two of ours instead. Each list (each
chunk) is one job: accepted once, run once, and after a crash run again from its first item.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .runtime import Runtime

__all__ = ["instead", "register_item_tasks"]

_OURS = {"celery.map": "celery_guard.map", "celery.starmap": "celery_guard.starmap"}


def instead(runtime: Runtime, name: str, kwargs: Any) -> str:
    """The name of the task that is to run these items: ours, where theirs is guarded and Celery's is not."""
    if (
        name not in _OURS
        or not isinstance(kwargs, Mapping)
        or runtime.contract_of(runtime.task_named(name)) is not None
    ):
        return name
    items_of = kwargs.get("task")
    task = runtime.task_named(str(items_of.get("task"))) if isinstance(items_of, Mapping) else None
    celerys = runtime.contract_of(task) is None or runtime.leaves(task)
    return name if celerys else _OURS[name]


def register_item_tasks(runtime: Runtime) -> None:
    """Give the app its two tasks for lists of items."""
    from .task import GuardedTask

    app = runtime.app

    def body(items_of: Mapping[str, Any]) -> Any:
        return app.tasks[items_of["task"]]

    def each(task: Mapping[str, Any], it: list[Any]) -> list[Any]:
        return [body(task)(item) for item in it]

    def each_star(task: Mapping[str, Any], it: list[Any]) -> list[Any]:
        return [body(task)(*items) for items in it]

    for name, run in (("celery_guard.map", each), ("celery_guard.starmap", each_star)):
        app.task(run, name=name, base=GuardedTask, shared=False)
