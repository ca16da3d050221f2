"""``guard alerts``: alert rules for Prometheus."""

from __future__ import annotations

import click

from .target import Target, pass_target
from .written import check_option, write_or_compare

__all__ = ["alerts"]

FILE = "celery-guard.rules.yml"


@click.command()
@click.argument("file", default=FILE, type=click.Path(dir_okay=False, allow_dash=True))
@click.option(
    "--runbook",
    default="docs/runbook/alerts.md",
    show_default=True,
    help="The address of your copy of the runbook's page of alerts, which each alert links to.",
)
@check_option
@pass_target
def alerts(target: Target, file: str, runbook: str, check: bool) -> None:
    """Write alert rules for Prometheus to FILE (celery-guard.rules.yml; - for stdout).

    Dead letters have a rule for each owner that a contract names, so the file is stale when those change: keep it in the repository, and
    have CI run this with --check.
    """
    target.load_tasks()
    from celery_guard.integrations.celery.metrics import whose_of

    whose = whose_of(target.runtime)
    from celery_guard.watch.alerts import rules_for, written

    owners = {owner for task in whose.tasks if (owner := whose.owner_of(task))}
    write_or_compare(target, written(rules_for(owners), runbook), file, check)
