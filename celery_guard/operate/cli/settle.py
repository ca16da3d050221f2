"""``guard jobs settle``: a person says how a job ended whose outcome is unknown."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import click

from celery_guard.job.state import LEGAL, State

from .filters import actor_options, reason_option
from .main import json_option
from .target import Target, pass_target
from .words import job_record

if TYPE_CHECKING:
    from celery_guard.flow.admin.actor import Actor

__all__ = ["settle"]

_WAYS = [to.value for of, to in LEGAL if of is State.UNKNOWN]


def _json(ctx: click.Context, parameter: click.Parameter, given: str | None) -> Any:
    if given is None:
        return None
    try:
        return json.loads(given)
    except ValueError as error:
        raise click.BadParameter(f"{error}. It is JSON: 7, null, '\"text\"', '{{\"id\": 7}}'.") from error


@click.command()
@click.argument("id")
@click.option(
    "--as", "state", type=click.Choice(_WAYS), required=True,
    help="succeeded: it took effect. dead: it did not, and is to be repaired. pending: it did not, and runs again.",
)  # fmt: skip
@click.option(
    "--value", callback=_json, metavar="JSON", help="With succeeded: what it returned, for Celery and for duplicates."
)
@reason_option(required=True)
@actor_options
@json_option
@pass_target
def settle(target: Target, id: str, state: str, value: Any, reason: str, by: Actor) -> None:
    """Say how a job ended whose outcome is unknown. Find out first: nobody checks what you say.

    Exit status 1 if the job is not unknown, or not any more.
    """
    if value is not None and state != State.SUCCEEDED.value:
        raise click.UsageError("--value is what a job returned that succeeded: type it with --as succeeded.")
    job = target.admin.jobs.settle(id, State(state), by=by, reason=reason, value=value)
    if target.terminal.as_json:
        target.terminal.json({**job_record(job), "actor": by.name, "reason": reason})
        return
    target.terminal.say(f"{job.id}  {job.shown_state}")
    target.terminal.note(f"settled by {by.name}: {reason}")
