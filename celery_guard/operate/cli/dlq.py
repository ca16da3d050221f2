"""``guard dlq``: dead letters, and sending them again."""

from __future__ import annotations

import base64
import json
from typing import TYPE_CHECKING, Any

import click

from celery_guard.flow.admin.actor import Action
from celery_guard.flow.admin.actor import Target as Selected
from celery_guard.job.state import State

from . import replay as replay_words
from .filters import (
    actor_options,
    confirm_option,
    letters_options,
    limit_option,
    page_options,
    reason_option,
    whose_options,
)
from .jobs import list_jobs, show_job
from .main import json_option
from .target import Target, pass_target
from .terminal import Column
from .words import ago, one_line, record

if TYPE_CHECKING:
    from celery_guard.flow.admin.actor import Actor
    from celery_guard.flow.admin.dlq import Summary
    from celery_guard.flow.admin.letters import Letters
    from celery_guard.job.letter import LetterGroup
    from celery_guard.job.row import Job, StoredPayload

__all__ = ["dlq", "legible"]


@click.group()
def dlq() -> None:
    """Dead letters, and sending them again."""


@dlq.command("list")
@whose_options
@click.option("--cause", help="Only of this cause group: what failed alike.")
@page_options
@actor_options
@json_option
@pass_target
def list_(target: Target, /, by: Actor, **which: Any) -> None:
    """Dead letters, the newest first."""
    target.load_tasks()
    which["tenant"] = target.admin.authority.look(by, Action.DLQ_LOOK, Selected(tenant=which["tenant"])).tenant
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
@click.option(
    "--reveal",
    is_flag=True,
    help="With the message: headers, and the body with the arguments. Takes --role admin and a --reason.",
)
@click.option(
    "--generation", type=click.IntRange(0),
    help="With --reveal: an earlier message, from before it was edited or a retry changed it; the first is 0.",
)  # fmt: skip
@reason_option(required=False)
@actor_options
@json_option
@pass_target
def show(
    target: Target, id: str, traceback: bool, reveal: bool, generation: int | None, reason: str | None, by: Actor
) -> None:
    """Why a job is dead, whom to ask, and its message."""
    if generation is not None and not reveal:
        raise click.UsageError("--generation says which message is shown: type it with --reveal.")
    letters = target.admin.dlq
    job = letters.show(id, by=by)
    if job.state is not State.DEAD and generation is None:
        look = target.typed("jobs", "show", job.id)
        target.terminal.note(f"The job {job.id} is no dead letter, it is {job.shown_state}. Type: {look}")
        click.get_current_context().exit(1)
    target.load_tasks()
    if reveal:
        payload = letters.reveal(id, by=by, reason=reason or "", generation=generation)
    else:
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
    if job.state is State.DEAD:
        send, close = (target.typed("dlq", word, job.id, "--reason", "TEXT") for word in ("replay", "resolve"))
        target.terminal.note(f"To send it again: {send}. To close it: {close}")


@dlq.command()
@click.option("--task", help="Only of this task.")
@click.option("--tenant", help="Only of this tenant.")
@limit_option
@actor_options
@json_option
@pass_target
def groups(target: Target, by: Actor, task: str | None, tenant: str | None, limit: int) -> None:
    """Dead letters by what failed alike, the largest group first."""
    found = target.admin.dlq.groups(by=by, task=task, tenant=tenant, limit=limit)
    if target.terminal.as_json:
        target.terminal.json(found)
        return
    target.terminal.listing(found, _GROUPS, "no dead letters")
    if found:
        which = target.typed("dlq", "list", "--cause", "CAUSE")
        send = target.typed("dlq", "replay", "--cause", "CAUSE", "--preview")
        target.terminal.note(f"Which they are: {which}. What sending them again would do: {send}")


_GROUPS: tuple[Column[LetterGroup], ...] = (
    Column("task", lambda group: group.task),
    Column("cause", lambda group: group.cause or "", whole=True),
    Column("type", lambda group: group.type_name),
    Column("count", lambda group: str(group.count), whole=True),
    Column("first", lambda group: ago(group.first), whole=True),
    Column("last", lambda group: ago(group.last), whole=True),
    Column("tenants", lambda group: str(group.tenants or ""), minor=True),
    Column("replayed", lambda group: ago(group.replayed), minor=True),
    Column("note", lambda group: f"{group.note} ({group.noted_by})" if group.note else ""),
)


@dlq.command()
@click.argument("cause")
@click.argument("text", required=False, default="")
@actor_options
@json_option
@pass_target
def note(target: Target, cause: str, text: str, by: Actor) -> None:
    """Put a note to a cause, for whoever looks next; without a text the note is taken away."""
    target.admin.dlq.note(cause, text, by=by)
    if target.terminal.as_json:
        target.terminal.json({"cause": cause, "note": text, "by": by.name})
    else:
        target.terminal.note(f"noted by {by.name}" if text else "the note is taken away")


@dlq.command()
@letters_options
@click.option("--repaired", is_flag=True, help="It was made good by hand; without this the loss is accepted.")
@reason_option(required=True)
@confirm_option
@actor_options
@json_option
@pass_target
def resolve(target: Target, /, letters: Letters, by: Actor, **how: Any) -> None:
    """Close dead letters: the loss is accepted, or was made good by hand."""
    _summed(target, target.admin.dlq.resolve(letters, by=by, **how), by)


@dlq.command()
@letters_options
@click.option("--unreplayed", is_flag=True, help="Also those that were neither replayed nor resolved.")
@reason_option(required=True)
@confirm_option
@actor_options
@json_option
@pass_target
def purge(target: Target, /, letters: Letters, by: Actor, **how: Any) -> None:
    """Delete letters that were replayed or resolved, with all that belongs to them. Takes --role admin."""
    summary = target.admin.dlq.purge(letters, by=by, **how)
    if summary.skipped and not how["unreplayed"] and not target.terminal.as_json:
        target.terminal.note("Those that were neither replayed nor resolved are deleted with --unreplayed.")
    _summed(target, summary, by)


def _summed(target: Target, summary: Summary, by: Actor) -> None:
    if target.terminal.as_json:
        target.terminal.json({**record(summary), "actor": by.name})
    else:
        for left in summary.examples:
            target.terminal.say(f"{one_line(left.id)}  {left.answer}: {left.why}")
        target.terminal.note(f"{summary}, by {by.name}")
    if summary.skipped:
        click.get_current_context().exit(1)


@dlq.command()
@letters_options
@actor_options
@pass_target
def export(target: Target, letters: Letters, by: Actor) -> None:
    """Print dead letters as JSON, one a line: without arguments and without the words of failures."""
    for letter in target.admin.dlq.export(letters, by=by):
        target.terminal.say(json.dumps(record(letter), ensure_ascii=True))


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


for _word in (replay_words.replay, replay_words.replays, replay_words.pause, replay_words.resume, replay_words.abort):
    dlq.add_command(_word)
