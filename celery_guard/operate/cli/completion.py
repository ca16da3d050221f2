"""``celery-guard completion``: the script by which a shell completes its words and options."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

from .main import main

__all__ = ["completion"]

_PROGRAM = "celery-guard"
_VARIABLE = "_CELERY_GUARD_COMPLETE"


@click.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def completion(shell: str) -> None:
    """Print the script that completes `celery-guard` in a shell. It names no app, and connects to nothing."""
    kind = get_completion_class(shell)
    assert kind is not None, f"click completes in {shell}"
    click.echo(kind(main, {}, _PROGRAM, _VARIABLE).source())
