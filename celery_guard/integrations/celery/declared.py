"""What Celery's own options declare about a task, in the contract's words.

An option counts as declared where the task, or a class between it and Celery's, sets it, or the app's configuration
does. A default of Celery's (every task has ``max_retries = 3``) is not a declaration.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from inspect import Signature
from typing import Any

from celery import Task

from celery_guard.contract.contract import UNSET, Effective, ReadOptions

__all__ = ["apply", "body_of", "read_options", "signature_of", "with_limits_of_app", "with_limits_of_call"]

_READ = (
    "autoretry_for", "dont_autoretry_for", "retry_kwargs", "retry_backoff", "retry_backoff_max", "retry_jitter", "max_retries",
    "default_retry_delay", "time_limit", "soft_time_limit", "expires", "reject_on_worker_lost",
)  # fmt: skip


def read_options(task: Any) -> ReadOptions:
    """Read a bound task's declared options."""
    found = {name: value for name in _READ if (value := _declared(task, name)) is not UNSET}
    for name in ("autoretry_for", "dont_autoretry_for"):
        if name in found:
            found[name] = tuple(found[name])
    return ReadOptions(**found)


def with_limits_of_app(contract: Effective, conf: Any) -> Effective:
    """With the app's ``task_time_limit``, by which the pool ends the attempts of tasks that declare none."""
    return contract if contract.timing.attempt is not None else _limited(contract, conf.task_time_limit)


def with_limits_of_call(contract: Effective, limits: Any) -> Effective:
    """With the limit of ``apply_async(time_limit=...)``, which wins over the task's; ``limits`` is the message's (hard, soft)."""
    return _limited(contract, limits[0] if limits else None)


def _limited(contract: Effective, hard: float | None) -> Effective:
    timing = contract.timing
    if hard is None or timing.attempt == timedelta(seconds=hard):
        return contract
    attempt = timedelta(seconds=hard)
    soft = None if timing.soft is None or timing.soft >= attempt else timing.soft
    return replace(contract, timing=replace(timing, attempt=attempt, soft=soft))


def apply(contract: Effective, task: Any) -> None:
    """Tell Celery what it has to do its part of: kill at the limits, and bound ``self.retry``."""
    task.max_retries = contract.explicit_retries
    timing = contract.timing
    task.time_limit = None if timing.attempt is None else timing.attempt.total_seconds()
    if timing.soft is not None:
        task.soft_time_limit = timing.soft.total_seconds()


def body_of(task: Any) -> Callable[..., Any]:
    """The body without Celery's autoretry wrapper: the contract does what that declares, by the one path of retries.

    The wrapper would also catch ``Reject``, and send the retry before the attempt is settled.
    """
    body: Callable[..., Any] = getattr(task, "_orig_run", task.run)
    return body


def signature_of(task: Any) -> Signature | None:
    """The signature of a task's body without ``self``; None where it cannot be read."""
    try:
        return inspect.signature(body_of(task))
    except (TypeError, ValueError):
        return None


def _declared(task: Any, name: str) -> Any:
    if name in task.__dict__:
        return task.__dict__[name]
    for kind in type(task).__mro__:
        if kind is Task:
            break
        if name in kind.__dict__:
            value = kind.__dict__[name]
            # ``bind`` writes the app's configuration onto the class: None there means that nobody said anything
            return UNSET if value is None and name != "max_retries" else value
    return UNSET
