"""Putting the guard under a task that was declared without it, because a contract beside the tasks names it."""

from __future__ import annotations

from typing import Any

from celery_guard.contract.contract import Contract
from celery_guard.errors import ContractError

from .task import GuardedTask

__all__ = ["put_under_guard"]


def put_under_guard(task: Any, contract: Contract) -> None:
    """Give a bound task this contract, and :class:`GuardedTask` as its last base: what its own classes define still wins.

    The task stays the object that it is, for everybody who has it already. Raises ``ContractError`` where it has a contract of its own.
    """
    own = getattr(task, "contract", None)
    if own is contract:
        return
    if own is not None:
        raise ContractError(
            f"{task.name}: found a contract at the task and one beside it (contracts), expected one of them. To repair: keep one."
        )
    if not getattr(task, "guarded", False):
        kind = type(task)
        started = {"guard_track_started": bool(task.track_started), "track_started": False}
        body = {"__module__": kind.__module__, "__doc__": kind.__doc__, **started}
        task.__dict__.pop("track_started", None)
        task.__class__ = type(kind.__name__, (kind, GuardedTask), body)
    task.contract = contract
