"""``task.using(transaction)``: a task whose jobs go out if, and only if, that transaction commits."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from .passage import through

if TYPE_CHECKING:
    from celery_guard.store.door import Door

    from .runtime import Runtime
    from .task import GuardedTask

__all__ = ["Using"]


class Using:
    """A task, and a transaction through which its jobs are enqueued."""

    def __init__(self, task: GuardedTask, door: Door, of: Runtime) -> None:
        self._task = task
        self._door = door
        self._of = of

    def delay(self, *args: Any, **kwargs: Any) -> Any:
        """As ``Task.delay``."""
        return self.apply_async(args, kwargs)

    def apply_async(self, *args: Any, **options: Any) -> Any:
        """As ``Task.apply_async``."""
        with through(self._door, self._of):
            return self._task.apply_async(*args, **options)

    def enqueue_many(self, calls: Iterable[Any], **options: Any) -> list[Any]:
        """As :meth:`~celery_guard.GuardedTask.enqueue_many`."""
        with through(self._door, self._of):
            return self._task.enqueue_many(calls, **options)

    async def adelay(self, *args: Any, **kwargs: Any) -> Any:
        """As :meth:`~celery_guard.GuardedTask.adelay`."""
        return await self.aapply_async(args, kwargs)

    async def aapply_async(self, *args: Any, **options: Any) -> Any:
        """As :meth:`~celery_guard.GuardedTask.aapply_async`."""
        with through(self._door, self._of):
            return await self._task.aapply_async(*args, **options)

    async def aenqueue_many(self, calls: Iterable[Any], **options: Any) -> list[Any]:
        """As :meth:`~celery_guard.GuardedTask.aenqueue_many`."""
        with through(self._door, self._of):
            return await self._task.aenqueue_many(calls, **options)
