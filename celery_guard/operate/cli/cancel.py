"""``guard jobs cancel``: jobs by id, or those of a filter, which are shown and asked about first."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import click

from .filters import actor_options, confirm_option, reason_option
from .main import json_option
from .target import Target, pass_target
from .terminal import Column
from .which import Words, which_options
from .words import ago, one_line, record

if TYPE_CHECKING:
    from celery_guard.flow.admin.actor import Actor
    from celery_guard.flow.admin.jobs import Plan
    from celery_guard.job.row import Job
    from celery_guard.store.protocol import Cancelled

__all__ = ["cancel"]


@click.command()
@click.argument("ids", nargs=-1, metavar="[ID...]")
@which_options
@click.option(
    "--most",
    type=click.IntRange(1, 100_000),
    default=10_000,
    show_default=True,
    help="Of a filter, no more than so many.",
)
@click.option("--dry-run", is_flag=True, help="Only show what would be cancelled.")
@click.option("--yes", is_flag=True, help="Do not ask. More than confirm_above still take --confirm.")
@confirm_option
@reason_option(required=False)
@actor_options
@json_option
@pass_target
def cancel(
    target: Target,
    ids: tuple[str, ...],
    words: Words,
    most: int,
    dry_run: bool,
    yes: bool,
    confirm: int | None,
    reason: str | None,
    by: Actor,
) -> None:
    """Cancel jobs that wait, ask running ones to stop.

    Name ids, or a filter: what it finds is shown, and frozen; jobs that are accepted later are not hit. Those that run stop at their next safe
    point. Exit status 1 if it was too late for one that was named, or there is no such job.
    """
    if bool(ids) == words.given:
        raise click.UsageError("Name either ids or a filter: --task, --tenant, --queue, --state and so on.")
    jobs = target.admin.jobs
    if words.given or dry_run:
        plan = jobs.plan_cancel(words.which(target) if words.given else ids, by=by, most=most)
        if dry_run or not plan.ids:
            _show(target, plan)
            return
        if not target.terminal.as_json:
            _show(target, plan)
        confirm = _confirmed(target, len(plan.ids), confirm, yes)
        ids = plan.ids
    if not reason:
        raise click.UsageError("Say why, for whoever reads the audit: --reason TEXT.")
    with target.terminal.progress("cancelling", len(ids)) as tick:
        answers = jobs.cancel(ids, by=by, reason=reason, confirm=confirm, progress=tick)
    _say(target, answers, by, reason, named=not words.given)
    if not words.given and any(answer.answer not in ("cancelled", "asked") for answer in answers):
        click.get_current_context().exit(1)


def _confirmed(target: Target, count: int, confirm: int | None, yes: bool) -> int | None:
    """How many jobs the person has said may be touched; asks where there is somebody to ask."""
    if yes or confirm is not None:
        return confirm
    if target.terminal.as_json or not sys.stdin.isatty():
        raise click.UsageError("There is nobody to ask here: look with --dry-run, then type --yes or --confirm NUMBER.")
    if count > target.settings.confirm_above:
        return int(
            click.prompt(f"That is more than {target.settings.confirm_above}. Type how many", type=int, err=True)
        )
    click.confirm(f"Cancel {count} jobs?", abort=True, err=True)
    return None


_SAMPLE: tuple[Column[Job], ...] = (
    Column("id", lambda job: job.id, whole=True),
    Column("task", lambda job: job.task),
    Column("state", lambda job: job.shown_state),
    Column("accepted", lambda job: ago(job.created), whole=True),
    Column("tenant", lambda job: job.tenant or "", minor=True),
)


def _show(target: Target, plan: Plan) -> None:
    terminal = target.terminal
    if terminal.as_json:
        terminal.json({**record(plan, ("sample",)), "count": len(plan.ids), "sample": [job.id for job in plan.sample]})
        return
    for title, counts in (("task", plan.tasks), ("state", plan.states), ("tenant", plan.tenants)):
        if any(counts):
            terminal.listing(_counted(counts), _columns(title), "")
            terminal.say()
    terminal.listing(plan.sample, _SAMPLE, "no such jobs")
    if plan.ids:
        shown = f", of which {len(plan.sample)} are shown" if len(plan.sample) < len(plan.ids) else ""
        more = "; there are more, which --most lets in" if plan.more else ""
        terminal.note(f"{len(plan.ids)} jobs{shown}{more}")


def _counted(counts: Mapping[str, int]) -> list[tuple[str, int]]:
    return sorted(counts.items(), key=lambda pair: (-pair[1], pair[0]))[:20]


def _columns(title: str) -> tuple[Column[tuple[str, int]], ...]:
    return Column(title, lambda row: row[0] or "(none)"), Column("jobs", lambda row: str(row[1]))


def _say(target: Target, answers: list[Cancelled], by: Actor, reason: str, *, named: bool) -> None:
    if target.terminal.as_json:
        said: list[dict[str, Any]] = [{**record(answer), "actor": by.name, "reason": reason} for answer in answers]
        target.terminal.json(said)
        return
    for answer in answers if named else ():
        target.terminal.say(f"{one_line(answer.id)}  {_words(answer)}")
    done = sum(answer.answer == "cancelled" for answer in answers)
    asked = sum(answer.answer == "asked" for answer in answers)
    missing = sum(answer.state is None for answer in answers)
    late = len(answers) - done - asked - missing
    not_there = f", {missing} not found" if missing else ""
    target.terminal.note(f"{done} cancelled, {asked} asked to stop, {late} too late{not_there}, by {by.name}: {reason}")


def _words(answer: Cancelled) -> str:
    if answer.state is None:
        return "there is no such job"
    if answer.answer == "asked":
        return "asked to stop; it runs until its next safe point"
    return answer.answer if answer.answer == "cancelled" else f"{answer.answer}: it is {answer.state}"
