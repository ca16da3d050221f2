"""``guard jobs watch``: jobs as they go, until all have ended."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from celery_guard.errors import NotFound
from celery_guard.job.state import ENDED, State

from .filters import actor_options
from .main import json_option
from .target import Target, pass_target
from .terminal import Column
from .which import Words, which_options
from .words import ago, job_record, one_line, progress_of

if TYPE_CHECKING:
    from celery_guard.flow.admin.actor import Actor
    from celery_guard.job.row import Job

__all__ = ["watch"]

_MOST = 50
_COLORS = {"running": "cyan", "cancelling": "yellow", "succeeded": "green", "dead": "red", "unknown": "magenta"}

_ROWS: tuple[Column[Job], ...] = (
    Column("id", lambda job: job.id, whole=True),
    Column("task", lambda job: job.task),
    Column("state", lambda job: job.shown_state, whole=True, color=lambda state: _COLORS.get(state, "")),
    Column("reason", lambda job: str(job.reason or "")),
    Column("attempt", lambda job: str(job.attempts), whole=True),
    Column("accepted", lambda job: ago(job.created), whole=True, minor=True),
    Column("due", lambda job: ago(job.due) if job.state is State.PENDING else "", whole=True),
    Column("progress", progress_of, minor=True),
    Column("worker", lambda job: job.owner or "", minor=True),
)


@click.command()
@click.argument("ids", nargs=-1, metavar="[ID...]")
@which_options
@click.option(
    "--every", type=click.FloatRange(0.1, 60), default=1.0, show_default=True, help="Seconds between two looks."
)
@actor_options
@json_option
@pass_target
def watch(target: Target, ids: tuple[str, ...], words: Words, every: float, by: Actor) -> None:
    """Watch jobs until all have ended: those that are named, or the newest 50 of a filter that have not ended.

    On a terminal the table is drawn anew; into a pipe goes a line for each change, and with --json each is a JSON document of its own.
    Exit status 0 if all succeeded, else 1.
    """
    if bool(ids) == words.given:
        raise click.UsageError("Name either ids or a filter: --task, --tenant, --queue, --state and so on.")
    if not ids:
        found = target.admin.jobs.list(words.which(target), by=by, limit=1000)
        ids = tuple(job.id for job in found if job.state not in ENDED)[:_MOST]
    if not ids:
        target.terminal.note("no such jobs")
        return
    drawn = not target.terminal.as_json and sys.stdout.isatty()
    last = _draw(target, ids, every, by) if drawn else _print(target, ids, every, by)
    if any(job.state is not State.SUCCEEDED for job in last) or len(last) < len(ids):
        click.get_current_context().exit(1)


def _look(target: Target, ids: Sequence[str], by: Actor, known: dict[str, Job]) -> list[Job]:
    """The jobs as they are. One that is forgotten while it is watched stays as it was seen last."""
    for id in ids:
        if id not in known or known[id].state not in ENDED:
            try:
                known[id] = target.admin.jobs.get(id, by=by)
            except NotFound:
                if id not in known:
                    raise
                target.terminal.note(f"{id} is forgotten.")
                ids = [other for other in ids if other != id]
    return [known[id] for id in ids]


def _draw(target: Target, ids: Sequence[str], every: float, by: Actor) -> list[Job]:
    known: dict[str, Job] = {}
    with target.terminal.live() as show:
        while True:
            jobs = _look(target, ids, by, known)
            ids = [job.id for job in jobs]
            show(jobs, _ROWS)
            if all(job.state in ENDED for job in jobs):
                return jobs
            time.sleep(every)


def _print(target: Target, ids: Sequence[str], every: float, by: Actor) -> list[Job]:
    known: dict[str, Job] = {}
    said: dict[str, tuple[object, ...]] = {}
    while True:
        jobs = _look(target, ids, by, known)
        ids = [job.id for job in jobs]
        for job in jobs:
            stands = (job.shown_state, job.reason, job.attempts, job.progress, job.publications)
            if said.get(job.id) != stands:
                said[job.id] = stands
                target.terminal.say(_line(target, job))
        sys.stdout.flush()
        if all(job.state in ENDED for job in jobs):
            return jobs
        time.sleep(every)


def _line(target: Target, job: Job) -> str:
    if target.terminal.as_json:
        return json.dumps(job_record(job), ensure_ascii=True)
    reason = f" ({job.reason})" if job.reason else ""
    progress = "" if job.progress is None else f"  {one_line(str(job.progress))}"
    return f"{job.id}  {job.task}  {job.shown_state}{reason}  attempt {job.attempts}{progress}"
