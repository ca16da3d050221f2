"""``guard dashboard``: a dashboard for Grafana."""

from __future__ import annotations

import click

from .target import Target, pass_target
from .written import check_option, write_or_compare

__all__ = ["dashboard"]

FILE = "celery-guard.dashboard.json"


@click.command()
@click.argument("file", default=FILE, type=click.Path(dir_okay=False, allow_dash=True))
@check_option
@pass_target
def dashboard(target: Target, file: str, check: bool) -> None:
    """Write a dashboard for Grafana to FILE (celery-guard.dashboard.json; - for stdout)."""
    from celery_guard.integrations.celery.metrics import need_client

    need_client()
    from celery_guard.watch.dashboard import written

    write_or_compare(target, written(), file, check)
