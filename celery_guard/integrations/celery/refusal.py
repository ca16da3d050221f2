"""What is said where a worker or a beat does not start: one line that says what to do, instead of Celery's traceback of it."""

from __future__ import annotations

import click

from celery_guard.errors import COMMAND, GuardError

__all__ = ["refusal"]


def refusal(what: str, error: GuardError) -> SystemExit:
    """Ends the process that was to be a ``what``. The commands in it name the app as this process was told it."""
    text = str(error)
    context = click.get_current_context(silent=True)
    # a string where Celery's command line was typed, the app itself where a program began it
    app = None if context is None else context.find_root().params.get("app")
    if isinstance(app, str):
        text = text.replace(COMMAND, f"celery -A {app} guard")
    return SystemExit(f"The {what} does not start [{error.code}]: {text}")
