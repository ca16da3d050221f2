"""Revoking a guarded job is cancelling its row, from wherever it is asked for.

Celery's revoke is a broadcast that workers keep in memory: lost with the worker, unknown to one that starts later, and its
``terminate`` is aimed at a process, which may be at another job by then. So ``app.control.revoke`` (and with it ``AsyncResult.revoke``) asks
the store first; only ids that the store does not know are broadcast. No signal is ever sent for a guarded job.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from celery import Celery
from celery.utils.imports import symbol_by_name

from .runtime import runtime_of

__all__ = ["guarded_control"]


def guarded_control(app: Celery) -> Callable[..., Any]:
    """The app's own remote control, with a revoke that knows guarded jobs; its class is made when it is first asked for."""
    named = app.control_cls
    return lambda app: _guarded(symbol_by_name(named))(app=app)


def _guarded(plain: Any) -> type[Any]:

    class GuardedControl(plain):  # type: ignore[misc]
        """Celery's remote control."""

        def revoke(self, task_id: Any, *args: Any, **options: Any) -> Any:
            """Cancel guarded jobs in the store, and broadcast the rest, if there is any."""
            ids = [task_id] if isinstance(task_id, str) else list(task_id)
            runtime = runtime_of(self.app)
            unknown = [id for id in ids if runtime.cancel(id).state is None]
            return super().revoke(unknown, *args, **options) if unknown else None

    return GuardedControl
