"""Signals: the one that the guard sends, and the few that it listens to.

It listens for a few things: that a process begins and ends, and that a beat starts. They are best effort, and nothing correct rests on them.
"""

from __future__ import annotations

from typing import Any

from celery import current_app, signals
from celery.utils.dispatch import Signal

from . import logged
from .runtime import ATTRIBUTE, Runtime

__all__ = ["connect", "job_dead"]

#: Sent once a job is dead or dropped, beside ``Task.on_dead``: sender is the task. Also after a crash in between, so perhaps twice.
job_dead = Signal(name="job_dead", providing_args={"job_id", "error"})


def connect() -> None:
    """Listen. Called for each app that gets a guard; connecting twice changes nothing."""
    logged.connect()
    signals.worker_process_init.connect(_begun, dispatch_uid="celery-guard-child-begun")
    signals.worker_process_shutdown.connect(_closed, dispatch_uid="celery-guard-child-closed")
    signals.beat_init.connect(_beat_begun, dispatch_uid="celery-guard-beat")
    signals.worker_shutdown.connect(_closed, dispatch_uid="celery-guard-worker-closed")


def _beat_begun(sender: Any, **_: Any) -> None:
    from .beat import attach

    attach(sender)


def _here() -> Runtime | None:
    """The guard of the process's app."""
    found: Runtime | None = current_app._get_current_object().__dict__.get(ATTRIBUTE)
    return found


def _begun(**_: Any) -> None:
    runtime = _here()
    if runtime is not None and runtime.meant:
        runtime.tracing  # noqa: B018 - made now, for whoever instruments Celery next


def _closed(**_: Any) -> None:
    runtime = _here()
    if runtime is None:
        return
    if "keeper" in runtime.__dict__:
        runtime.keeper.close()
    runtime.flush_telemetry()
