"""Beside ``opentelemetry-instrumentation-celery``: who owns the span of what.

The guard owns the spans of guarded jobs, the instrumentation those of every other task. The instrumentation begins a run span
for each delivery, before anybody knows whether a body will run, and writes the failure's message into it; so it is kept from guarded jobs, at its
six signals, in whatever order the two are set up: its class is told for those who switch it on later, and what is connected already
is connected anew.
"""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable, Mapping
from importlib.util import find_spec
from typing import Any

__all__ = ["SIGNALS", "stand_beside"]

logger = logging.getLogger("celery_guard.tracing")

#: Celery's signals that the instrumentation listens to, and its methods.
SIGNALS = {
    "before_task_publish": "_trace_before_publish",
    "after_task_publish": "_trace_after_publish",
    "task_prerun": "_trace_prerun",
    "task_postrun": "_trace_postrun",
    "task_failure": "_trace_failure",
    "task_retry": "_trace_retry",
}

_STANDS_BACK = "_celery_guard_stands_back"

_Listener = Callable[..., Any]


def stand_beside(signals: Mapping[str, Any], ours: Callable[[str, Mapping[str, Any]], bool]) -> None:
    """Keep the instrumentation, where it is installed, from what ``ours(signal, its arguments)`` says is the guard's. Once is enough."""
    if not _installed():
        return
    from opentelemetry.instrumentation.celery import CeleryInstrumentor

    missing = [method for method in SIGNALS.values() if not hasattr(CeleryInstrumentor, method)]
    if missing:
        logger.warning(
            "this version of opentelemetry-instrumentation-celery is not known (it has no %s): guarded jobs may have two spans each; "
            "leave CeleryInstrumentor().instrument() out", missing[0],
        )  # fmt: skip
        return
    if hasattr(getattr(CeleryInstrumentor, SIGNALS["task_prerun"]), _STANDS_BACK):
        return
    # the one that there is, as it is connected already or will be
    instrumentor: Any = CeleryInstrumentor()  # type: ignore[no-untyped-call]
    for name, method in SIGNALS.items():
        before = getattr(instrumentor, method)
        connected = signals[name].disconnect(before)
        setattr(CeleryInstrumentor, method, _unless(name, vars(CeleryInstrumentor)[method], ours))
        if connected:
            signals[name].connect(getattr(instrumentor, method), weak=False)


def _installed() -> bool:
    try:
        return find_spec("opentelemetry.instrumentation.celery") is not None
    except ModuleNotFoundError:
        return False


def _unless(signal: str, plain: Any, ours: Callable[[str, Mapping[str, Any]], bool]) -> Any:
    static = isinstance(plain, staticmethod)
    listen: _Listener = plain.__func__ if static else plain

    @functools.wraps(listen)
    def listener(*args: Any, **kwargs: Any) -> None:
        if not ours(signal, kwargs):
            listen(*args, **kwargs)

    setattr(listener, _STANDS_BACK, True)
    return staticmethod(listener) if static else listener
