"""``guard audit``: who did what, on what, why, from where, and what came of it."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

import click

from celery_guard.flow.admin.actor import Action
from celery_guard.job.audit import Outcome

from .filters import AGE, actor_options, limit_option
from .main import json_option
from .target import Target, pass_target
from .terminal import Column
from .words import when

if TYPE_CHECKING:
    from celery_guard.flow.admin.actor import Actor
    from celery_guard.job.audit import AuditEntry

__all__ = ["audit"]

_COLORS = {"done": "green", "refused": "yellow", "failed": "red"}

_ROWS: tuple[Column[AuditEntry], ...] = (
    Column("number", lambda row: str(row.number), whole=True),
    Column("at", lambda row: when(row.at), whole=True),
    Column("who", lambda row: f"{row.actor} ({row.role})" if row.role else row.actor),
    Column("action", lambda row: row.action, whole=True),
    Column("outcome", lambda row: str(row.outcome), whole=True, color=lambda word: _COLORS.get(word, "")),
    Column("on", lambda row: row.job or row.target),
    Column("reason", lambda row: row.reason),
    Column("what came of it", lambda row: row.detail),
    Column("from", lambda row: row.origin, minor=True),
    Column("tenant", lambda row: row.tenant or "", minor=True),
    Column("entry", lambda row: row.entry, minor=True, whole=True),
)


@click.group()
def audit() -> None:
    """Who did what, and why."""


@audit.command("list")
@click.option("--by", "actor", metavar="NAME", help="Only what this actor did.")
@click.option("--action", type=click.Choice([str(action) for action in Action]), help="Only this action.")
@click.option("--outcome", type=click.Choice([str(outcome) for outcome in Outcome]), help="Only rows that say this.")
@click.option("--job", metavar="ID", help="Only what was done to this job.")
@click.option("--tenant", help="Only of this tenant.")
@click.option("--entry", help="Only the rows of one action.")
@click.option("--since", type=AGE, metavar="AGE", help="Only rows that are no older: 2h, 7d.")
@click.option("--after", type=int, metavar="NUMBER", help="Go on after this row, the last of the page before.")
@limit_option
@actor_options
@json_option
@pass_target
def list_(
    target: Target,
    /,
    by: Actor,
    action: str | None,
    outcome: str | None,
    limit: int,
    since: timedelta | None,
    **which: Any,
) -> None:
    """Rows of the audit, the newest first.

    An action has a row `intended`, and one that says what came of it; where that is missing, the process was killed in between.
    """
    found = target.admin.audit.list(
        by=by, action=Action(action) if action else None, outcome=Outcome(outcome) if outcome else None, since=since,
        limit=limit + 1, **which,
    )  # fmt: skip
    page = found[:limit]
    if target.terminal.as_json:
        target.terminal.json(page)
        return
    target.terminal.listing(page, _ROWS, "no such rows")
    if len(found) > limit:
        target.terminal.note(f"There are more: --limit, or --after {page[-1].number}")
