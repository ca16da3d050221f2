"""``guard check``: what is unsafe about the app's settings and contracts."""

from __future__ import annotations

import click

from celery_guard.contract.facts import Severity
from celery_guard.operate.check import lines, summary, worst

from .main import json_option
from .target import Target, pass_target
from .words import record

__all__ = ["check"]


@click.command()
@click.option("-P", "--pool", help="The pool that workers are started with; by default the configured one.")
@click.option(
    "--fail-on", type=click.Choice([severity.value for severity in Severity]), default="warning", show_default=True,
    help="The mildest finding that makes the exit status 1.",
)  # fmt: skip
@json_option
@pass_target
def check(target: Target, pool: str | None, fail_on: str) -> None:
    """What is unsafe about settings and contracts.

    Each finding has a code, why it matters, and the fix. Connects to nothing, except for a Redis store: its server is asked how it
    is set.
    """
    from celery_guard.contract.unsafe import findings
    from celery_guard.integrations.celery.facts import read_facts

    target.load_tasks()
    # here, where a missing driver is explained
    assert target.store is not None
    found = findings(read_facts(target.app, pool))
    if target.terminal.as_json:
        target.terminal.json([record(finding) for finding in found])
    else:
        for finding in found:
            for line in lines(finding):
                target.terminal.say(line)
        target.terminal.note(summary(found))
    if worst(found) >= Severity(fail_on).rank:
        click.get_current_context().exit(1)
