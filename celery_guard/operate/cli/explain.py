"""``guard explain``: why a job is not running; without one, what stalls the whole system."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from .filters import actor_options
from .main import json_option
from .target import Target, pass_target
from .words import record, when

if TYPE_CHECKING:
    from celery_guard.flow.admin.actor import Actor
    from celery_guard.flow.admin.blocker import Blocker

__all__ = ["explain"]

_STORE_OUT = "EXPLAIN-100"


@click.command()
@click.argument("job", required=False)
@actor_options
@json_option
@pass_target
def explain(target: Target, job: str | None, by: Actor) -> None:
    """Why JOB is not running; without one, what stalls the whole system.

    Asks the store, the broker and the workers, for a few seconds at most. Each finding has a code that the runbook explains, since when it holds, and
    what to type next. Exit status 1 if somebody has to do something, 3 if the store does not answer.
    """
    target.load_tasks()
    found = target.admin.jobs.explain(job, by=by)
    wrong = any(blocker.wrong for blocker in found)
    if target.terminal.as_json:
        target.terminal.json({"job": job, "well": not wrong, "blockers": [_record(target, one) for one in found]})
    else:
        for blocker in found:
            _say(target, blocker)
        if not found:
            target.terminal.say("Nothing stalls.")
    if wrong:
        click.get_current_context().exit(3 if found[0].code == _STORE_OUT else 1)


def _record(target: Target, blocker: Blocker) -> dict[str, Any]:
    values: dict[str, Any] = record(blocker)
    return {**values, "title": blocker.title, "type": _typed(target, blocker)}


def _say(target: Target, blocker: Blocker) -> None:
    terminal = target.terminal
    terminal.say(terminal.colored(f"{blocker.code}  {blocker.title}", "red" if blocker.wrong else "green"))
    details = [
        ("what", target.said(blocker.what)), ("since", when(blocker.since)), ("until", when(blocker.until)),
        ("type", _typed(target, blocker)),
    ]  # fmt: skip
    terminal.details([(f"  {label}", text) for label, text in details if text])


def _typed(target: Target, blocker: Blocker) -> str:
    """What to type next, in the way that this was typed."""
    if not blocker.next:
        return ""
    program, *words = blocker.next
    return target.typed(*words) if program == "guard" else target.typed_to_celery(program, *words)
