"""The relay as a beat task: ``celery_guard.relay``, which every guarded app has, whether it relays or only sends."""

from __future__ import annotations

from typing import Any

from celery import Task

from .runtime import Runtime, runtime_of

__all__ = ["RELAY_TASK", "register_relay_task"]

RELAY_TASK = "celery_guard.relay"


def register_relay_task(runtime: Runtime) -> None:
    """The beat task: relays and sweeps what is due at that moment. It is no guarded job itself, or nothing would publish it."""
    runtime.app.task(_relay, name=RELAY_TASK, base=Task, bind=True, ignore_result=True, shared=False)


def _relay(task: Any) -> int:
    """One function for all apps: a spawned child has two of the same name."""
    from .relay import make_relay

    made = make_relay(runtime_of(task.app))
    made.sweep()
    return made.drain()
