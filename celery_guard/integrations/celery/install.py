"""Tying the guard to an app: its door, its worker steps and its beat task. Opens nothing, reads no configuration."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from celery import Celery
from kombu.transport import TRANSPORT_ALIASES

from . import signals
from .control import guarded_control
from .groups import gathering_members
from .items import register_item_tasks
from .relay_task import register_relay_task
from .runtime import ATTRIBUTE, Runtime
from .send import Sender

__all__ = ["install"]

#: What a worker does beside its own. By name, as Celery has its own steps: whoever only sends imports none of it.
_STEPS = {
    "worker": (".worker:BootStep", ".relay:RelayStep", ".metrics:MetricsStep"),
    "consumer": (".worker:ConsumerStep",),
}


def install(app: Celery, arguments: Mapping[str, Any]) -> Runtime:
    """The runtime of an app; made, and the app's sends opened onto the store, if it has none yet."""
    found: Runtime | None = app.__dict__.get(ATTRIBUTE)
    if found is not None:
        return found
    runtime = Runtime(app, arguments)
    setattr(app, ATTRIBUTE, runtime)
    runtime.sender = Sender(runtime, app.send_task)
    app.send_task = runtime.sender
    app.producer_or_acquire = gathering_members(runtime.sender, app.producer_or_acquire)
    _survive_pickling(app, runtime, arguments)
    app.control_cls = guarded_control(app)
    app.__dict__.pop("control", None)
    for blueprint, steps in _STEPS.items():
        app.steps[blueprint].update(__package__ + step for step in steps)
    TRANSPORT_ALIASES.setdefault("files", f"{__package__}.files:Transport")
    register_relay_task(runtime)
    register_item_tasks(runtime)
    signals.connect()
    app.on_after_finalize.connect(runtime.finalized, weak=False)
    return runtime


def _survive_pickling(app: Celery, runtime: Runtime, arguments: Mapping[str, Any]) -> None:
    """A child that is spawned and not forked gets the app by pickle, and its tasks bring their guard along: tell it the same settings."""
    plain_control, plain_keys = app.control_cls, app.__reduce_keys__

    def keys() -> dict[str, Any]:
        found: dict[str, Any] = plain_keys()
        settings = {f"guard_{name}": value for name, value in arguments.items()}
        if runtime.contracts is not None:
            settings["guard_contracts"] = runtime.contracts
        return {**found, "control": plain_control, "changes": {**found["changes"], **settings}}

    app.__reduce_keys__ = keys
