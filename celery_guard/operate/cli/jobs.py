"""``guard jobs``: every job and its state. Arguments are never shown here."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import click

from celery_guard.flow.admin.timeline import NOT_KEPT
from celery_guard.job.state import ENDED, State

from .cancel import cancel
from .filters import actor_options, page_options
from .main import json_option
from .settle import settle
from .target import Target, pass_target
from .terminal import Column, Terminal
from .watch import watch
from .which import Words, which_options
from .words import ago, job_record, progress_of, record, when

if TYPE_CHECKING:
    from celery_guard.flow.admin.actor import Actor
    from celery_guard.flow.admin.timeline import Moment
    from celery_guard.job.row import Job, StoredFailure

__all__ = ["jobs", "list_jobs", "show_job", "show_page"]


@click.group()
def jobs() -> None:
    """Every job and its state."""


for _word in (watch, cancel, settle):
    jobs.add_command(_word)

_COLORS = {"running": "cyan", "cancelling": "yellow", "succeeded": "green", "dead": "red", "unknown": "magenta"}

_JOBS: tuple[Column[Job], ...] = (
    Column("id", lambda job: job.id, whole=True),
    Column("task", lambda job: job.task),
    Column("state", lambda job: job.shown_state, color=lambda state: _COLORS.get(state, "")),
    Column("reason", lambda job: str(job.reason or "")),
    Column("accepted", lambda job: ago(job.created), whole=True, minor=True),
    Column("due", lambda job: ago(job.due) if job.state is State.PENDING else "", minor=True),
    Column("attempts", lambda job: str(job.attempts), minor=True),
    Column("queue", lambda job: job.queue, minor=True),
    Column("tenant", lambda job: job.tenant or "", minor=True),
)


@jobs.command("list")
@which_options
@page_options
@actor_options
@json_option
@pass_target
def list_(target: Target, /, words: Words, limit: int, after: str | None, by: Actor) -> None:
    """Jobs, the newest first."""
    found = target.admin.jobs.list(words.which(target), by=by, limit=limit + 1, after=after)
    show_page(target, _JOBS, "no such jobs", found, limit)


def list_jobs(target: Target, columns: tuple[Column[Job], ...], nothing: str, *, limit: int, **which: Any) -> None:
    """Print a page of jobs, and how to see the next."""
    show_page(target, columns, nothing, target.store.jobs(limit=limit + 1, **which), limit)


def show_page(target: Target, columns: tuple[Column[Job], ...], nothing: str, found: list[Job], limit: int) -> None:
    """Print the first ``limit`` of the jobs that were found, and how to see the next."""
    page = found[:limit]
    if target.terminal.as_json:
        target.terminal.json([job_record(job) for job in page])
        return
    target.terminal.listing(page, columns, nothing)
    if len(found) > limit:
        target.terminal.note(f"There are more: --limit, or --after {page[-1].id}")


@jobs.command()
@click.argument("id")
@click.option("--traceback", is_flag=True, help="With the tracebacks of failed attempts.")
@actor_options
@json_option
@pass_target
def show(target: Target, id: str, traceback: bool, by: Actor) -> None:
    """One job, and the story of it: accepted, published, each failed attempt, what people did, how it ended."""
    admin = target.admin.jobs
    job = admin.get(id, by=by)
    moments = admin.timeline(id, by=by)
    if target.terminal.as_json:
        show_job(target.terminal, job, traceback=traceback, more={"timeline": record(moments), "not_kept": NOT_KEPT})
        return
    target.terminal.details(_lines(job))
    target.terminal.heading("what happened, oldest first")
    target.terminal.listing(moments, _MOMENTS, "")
    for failure in job.failures if traceback else ():
        target.terminal.heading(f"traceback of fence {failure.fence}")
        target.terminal.say(failure.traceback)
    target.terminal.note(NOT_KEPT)
    if job.state not in ENDED:
        target.terminal.note(f"Why it does not run: {target.typed('explain', job.id)}")


_MOMENTS: tuple[Column[Moment], ...] = (
    Column("at", lambda moment: when(moment.at) if moment.at else "(not kept)", whole=True),
    Column("what", lambda moment: moment.what, color=lambda what: _COLORS.get(what, "")),
    Column("detail", lambda moment: moment.detail),
    Column("worker", lambda moment: moment.worker, minor=True),
    Column("fence", lambda moment: "" if moment.fence is None else str(moment.fence), minor=True),
)


def show_job(terminal: Terminal, job: Job, *, traceback: bool, more: Mapping[str, Any] | None = None) -> None:
    """Print one job with its failures; ``more`` is put beside what every job has: texts, and for JSON anything."""
    more = more or {}
    if terminal.as_json:
        left_out = () if traceback else ("traceback",)
        failures = [record(failure, left_out) for failure in job.failures]
        terminal.json({**job_record(job), **more, "failures": failures})
        return
    terminal.details([*_lines(job), *((name.replace("_", " "), str(text)) for name, text in more.items())])
    if job.failures:
        terminal.heading("failures, oldest first")
        terminal.listing(job.failures, _FAILURES, "")
    for failure in job.failures if traceback else ():
        terminal.heading(f"traceback of fence {failure.fence}")
        terminal.say(failure.traceback)


_FAILURES: tuple[Column[StoredFailure], ...] = (
    Column("at", lambda failure: when(failure.at), whole=True),
    Column("attempt", lambda failure: str(failure.attempt or ""), minor=True),
    Column("fence", lambda failure: str(failure.fence), whole=True),
    Column("class", lambda failure: failure.failure_class),
    Column("type", lambda failure: failure.type_name),
    Column("message", lambda failure: failure.message + (" (shortened)" if failure.truncated else "")),
    Column("worker", lambda failure: failure.worker, minor=True),
)


#: What happens at a row's due instant; for ended ones Celery is told again.
_DUE = {
    State.PENDING: "due",
    State.SENT: "missed from",
    State.RUNNING: "lease ends",
    State.UNKNOWN: "looked at",
}


def _lines(job: Job) -> list[tuple[str, str]]:
    counts = [
        (job.attempts, "attempts"), (job.crashes, "crashes"), (job.retries, "retries"), (job.replays, "replays"),
        (job.interruptions, "interruptions in a row"),
        (job.publications, "publications"), (job.refusals, "refused by the broker"),
    ]  # fmt: skip
    return [
        ("id", job.id),
        ("task", job.task),
        ("state", job.shown_state + (f" ({job.reason})" if job.reason else "")),
        ("counts", ", ".join(f"{name} {count}" for count, name in counts if count)),
        (
            "held by" if job.state is State.RUNNING else "last held by",
            f"{job.owner} (fence {job.fence})" if job.owner else "",
        ),
        ("queue", job.queue),
        ("priority", "" if job.priority is None else str(job.priority)),
        ("tenant", job.tenant or ""),
        ("key", job.key or ""),
        ("follows", job.holder or ""),
        ("accepted", when(job.created)),
        (_DUE.get(job.state, "told again"), when(job.due)),
        ("published", when(job.sent)),
        ("started", when(job.started)),
        ("ended", when(job.finished)),
        ("deadline", when(job.deadline)),
        ("kept until", when(job.keep_until)),
        ("failed as", f"{job.failure_class} (cause {job.cause})" if job.failure_class else ""),
        ("progress", progress_of(job)),
        ("schedule", job.schedule or ""),
        ("parent", job.parent_id or ""),
        ("root", job.root_id if job.root_id and job.root_id != job.id else ""),
        ("group", job.group_id or ""),
        ("correlation", job.correlation_id or ""),
    ]


@jobs.command()
@actor_options
@json_option
@pass_target
def counts(target: Target, by: Actor) -> None:
    """How many jobs are in each state."""
    found = target.admin.jobs.counts(by=by)
    if target.terminal.as_json:
        target.terminal.json({state.value: found.get(state, 0) for state in State})
        return
    target.terminal.listing(
        [(state.value, found[state]) for state in State if found.get(state)],
        (Column("state", lambda row: row[0]), Column("jobs", lambda row: str(row[1]))),
        "no jobs",
    )
