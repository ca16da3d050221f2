"""Where logs meet Celery: when a job's records begin and end, how Celery's handlers format, and what its lines may show.

A job's records begin before Celery calls anything (``task_prerun``) and end after everything (``task_postrun``), so Celery's own line about how a task
ended, and what its hooks log, are inside.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from celery import current_app, signals

from celery_guard.contract.sensitive import MASK, Hidden
from celery_guard.job.envelope import HEADER
from celery_guard.watch import logs
from celery_guard.watch.json_lines import json_formatter

from .private import hidden_of
from .runtime import ATTRIBUTE, runtime_of

if TYPE_CHECKING:
    from celery_guard.flow.context import RunningJob
    from celery_guard.watch.tracing import RunSpan

    from .runtime import Runtime

__all__ = ["call_without_values", "connect", "note_attempt"]


def connect() -> None:
    """Listen. Connecting twice changes nothing."""
    signals.task_prerun.connect(_begun, dispatch_uid="celery-guard-logs-begun")
    signals.task_postrun.connect(_over, dispatch_uid="celery-guard-logs-over")
    signals.after_setup_logger.connect(_set_up, dispatch_uid="celery-guard-logs")
    signals.after_setup_task_logger.connect(_set_up, dispatch_uid="celery-guard-task-logs")


def note_attempt(job: RunningJob, span: RunSpan) -> None:
    """The job is claimed: its records say which attempt it is, and which trace it belongs to."""
    trace_id, span_id = span.ids or (None, None)
    logs.know(
        job_id=job.id, attempt=job.attempt, key=job.key, tenant=job.tenant, correlation_id=job.correlation_id,
        trace_id=trace_id, span_id=span_id,
    )  # fmt: skip


def call_without_values(args: Any, kwargs: Mapping[str, Any]) -> dict[str, str]:
    """What Celery prints of a call in events and logs: how many arguments and which names, but no value."""
    named = ", ".join(f"{name!r}: {MASK}" for name in kwargs)
    return {"argsrepr": f"({', '.join([MASK] * len(args))})", "kwargsrepr": f"{{{named}}}"}


def _begun(sender: Any = None, task_id: str | None = None, args: Any = (), kwargs: Any = None, **_: Any) -> None:
    if not getattr(sender, "guarded", False):
        return
    logs.install()
    request = sender.request_stack.top
    said = (request.headers or {}).get(HEADER)
    said = said if isinstance(said, Mapping) else {}
    known = {name: said.get(name) for name in ("key", "tenant", "correlation_id")}
    request.guard_logs = logs.begin(_hidden(sender, args, kwargs), job_id=task_id, task=sender.name, **known)


def _hidden(task: Any, args: Any, kwargs: Any) -> Hidden:
    runtime = runtime_of(task.app)
    return hidden_of(runtime, task, runtime.contract_of(task), args, kwargs)


def _over(sender: Any = None, **_: Any) -> None:
    token = getattr(sender.request_stack.top, "guard_logs", None) if getattr(sender, "guarded", False) else None
    if token is not None:
        logs.end(token)


def _set_up(logger: logging.Logger | None = None, **_: Any) -> None:
    """Celery has set up its handlers: with the format that the setting says, or so that a format of the user's may name our fields."""
    runtime: Runtime | None = current_app._get_current_object().__dict__.get(ATTRIBUTE)
    if logger is None or runtime is None or not runtime.meant:
        return
    for handler in logger.handlers:
        if runtime.settings.log_format == "json":
            handler.setFormatter(json_formatter())
        elif "guard_" in str(getattr(handler.formatter, "_fmt", "")):
            handler.addFilter(logs.JobFields())
