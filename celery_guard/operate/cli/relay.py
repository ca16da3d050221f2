"""``guard relay``: publishes due jobs, in the foreground."""

from __future__ import annotations

import click

from .main import json_option
from .target import Target, pass_target

__all__ = ["relay"]


@click.command()
@click.option("--once", is_flag=True, help="Sweep, publish what is due, print how many, and end.")
@click.option(
    "-l", "--loglevel", default="INFO", show_default=True,
    type=click.Choice(["DEBUG", "INFO", "WARNING", "ERROR"], case_sensitive=False), help="What is logged to stderr.",
)  # fmt: skip
@json_option
@pass_target
def relay(target: Target, once: bool, loglevel: str) -> None:
    """Publish due jobs, in the foreground.

    Until SIGTERM or Ctrl-C; then the batch at hand is finished. Any number of relays may run; two of them work and the others stand by. Workers run one by default.
    """
    # a relay that runs waits for a store that is away; one that is started says so
    target.store.check()
    target.load_tasks()
    target.runtime.app.log.setup_logging_subsystem(loglevel=loglevel.upper())
    if once:
        _once(target)
        return
    from celery_guard.integrations.celery.relay import run_in_foreground

    broker = target.runtime.app.connection_for_write().as_uri()
    target.terminal.note(f"Relaying from {target.settings.shown_store} to {broker}. Stop with Ctrl-C.")
    run_in_foreground(target.runtime)


def _once(target: Target) -> None:
    from celery_guard.integrations.celery.relay import make_relay

    made = make_relay(target.runtime)
    swept, taken = made.sweep(), made.drain()
    if target.terminal.as_json:
        target.terminal.json({"taken": taken, "swept": swept, "broker_out": made.broker_out})
    else:
        target.terminal.say(f"{taken} taken to be published, {swept} swept.")
    if made.broker_out:
        target.terminal.note("The broker cannot be reached; what was taken waits in the store.")
        click.get_current_context().exit(1)
