"""``guard dlq``: dead letters, and sending them again."""

from __future__ import annotations

import base64
import json
from typing import TYPE_CHECKING, Any

import click

from celery_guard.job.event import Replayed
from celery_guard.job.state import State

from .filters import actor_options, page_options, reason_option, whose_options
from .jobs import list_jobs, no_such_job, show_job
from .main import json_option
from .target import Target, pass_target
from .terminal import Column
from .words import ago, one_line, record

if TYPE_CHECKING:
    from celery_guard.flow.admin.actor import Actor
    from celery_guard.job.row import Job, StoredPayload

__all__ = ["dlq", "legible"]


@click.group()
def dlq() -> None:
    """Dead letters, and sending them again."""


@dlq.command("list")
@whose_options
@click.option("--cause", help="Only of this cause group: what failed alike.")
@page_options
@json_option
@pass_target
def list_(target: Target, /, **which: Any) -> None:
    """Dead letters, the newest first."""
    target.load_tasks()
    columns: tuple[Column[Job], ...] = (
        Column("id", lambda job: job.id, whole=True),
        Column("task", lambda job: job.task),
        Column("owner", lambda job: _team(target, job)),
        Column("reason", lambda job: str(job.reason or "")),
        Column("died", lambda job: ago(job.finished), whole=True, minor=True),
        Column("class", lambda job: job.failure_class or "", minor=True),
        Column("cause", lambda job: job.cause or "", whole=True, minor=True),
        Column("attempts", lambda job: str(job.attempts), minor=True),
        Column("tenant", lambda job: job.tenant or "", minor=True),
    )
    list_jobs(target, columns, "no dead letters", states=[State.DEAD], **which)


@dlq.command()
@click.argument("id")
@click.option("--traceback", is_flag=True, help="With the tracebacks of failed attempts.")
@click.option("--reveal", is_flag=True, help="With the message: headers, and the body with the arguments.")
@json_option
@pass_target
def show(target: Target, id: str, traceback: bool, reveal: bool) -> None:
    """Why a job is dead, whom to ask, and its message."""
    job = target.store.job(id)
    if job is None:
        no_such_job(target, id)
        return
    if job.state is not State.DEAD:
        look = target.typed("jobs", "show", job.id)
        target.terminal.note(f"The job {job.id} is no dead letter, it is {job.shown_state}. Type: {look}")
        click.get_current_context().exit(1)
    target.load_tasks()
    payload = target.store.payload(id)
    more = {"contract_owner": _team(target, job), "message_bytes": "gone" if payload is None else len(payload.body)}
    message = _message(payload) if reveal and payload is not None else {}
    if target.terminal.as_json:
        show_job(target.terminal, job, traceback=traceback, more={**more, **message})
        return
    show_job(target.terminal, job, traceback=traceback, more=more)
    for part, value in message.items():
        target.terminal.heading(part)
        target.terminal.say(value if isinstance(value, str) else json.dumps(value, indent=2))


@dlq.command()
@click.argument("ids", nargs=-1, required=True, metavar="ID...")
@reason_option(required=True)
@actor_options
@json_option
@pass_target
def replay(target: Target, ids: tuple[str, ...], reason: str, by: Actor) -> None:
    """Send dead letters again, from the start.

    Counts begin anew, message and history stay. One that is not dead, or whose key another job has taken, is skipped, and the exit status is 1.
    """
    answers = target.store.replay(list(dict.fromkeys(ids)))
    for answer in answers:
        target.runtime.observers.tell(Replayed(answer.id, "", answer.answer, answer.why))
    if target.terminal.as_json:
        target.terminal.json([{**record(answer), "actor": by.name, "reason": reason} for answer in answers])
    else:
        for answer in answers:
            why = f": {answer.why}" if answer.why else ""
            target.terminal.say(f"{one_line(answer.id)}  {answer.answer}{why}")
        done = sum(answer.answer == "replayed" for answer in answers)
        target.terminal.note(f"{done} replayed, {len(answers) - done} skipped, by {by.name}: {reason}")
    if any(answer.answer != "replayed" for answer in answers):
        click.get_current_context().exit(1)


def _team(target: Target, job: Job) -> str:
    """Who is asked about jobs of this task, as its contract says."""
    return target.runtime.contract_named(job.task).owner or ""


def _message(payload: StoredPayload) -> dict[str, Any]:
    return {
        "headers": json.loads(payload.headers),
        "delivery": json.loads(payload.delivery),
        "body": legible(payload.body),
    }


def legible(body: bytes) -> str:
    """Raw bytes as text where they are text, else as base64."""
    try:
        return body.decode("utf-8")
    except UnicodeDecodeError:
        return "base64:" + base64.b64encode(body).decode("ascii")
