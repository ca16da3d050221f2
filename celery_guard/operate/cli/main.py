"""The two ways in: ``celery -A shop guard ...`` and ``celery-guard -A shop ...``. The same words behind both.

Celery imports this module for every command of its own, so it imports next to nothing: a word's module is imported when it is
typed, and so is the app. What a word cannot do ends in one line on stderr and an exit status that means something:

==  =========================================================================
0   done, or: all is well
1   the answer is no: a finding, no such job, too late, nobody relays
2   it was typed or configured wrongly
3   the store cannot be reached, or its tables are not those of this version
==  =========================================================================
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any, TypeVar

import click

from celery_guard.errors import GuardError

__all__ = ["APP", "COLOR", "JSON", "guard", "json_option", "main"]

F = TypeVar("F", bound=Callable[..., Any])

#: Keys of ``Context.meta``, which all words of one command line share.
APP, JSON, COLOR = "celery_guard.app", "celery_guard.json", "celery_guard.color"

_WORDS = (
    "store",
    "relay",
    "jobs",
    "dlq",
    "quarantine",
    "audit",
    "keys",
    "explain",
    "status",
    "metrics",
    "alerts",
    "dashboard",
    "check",
    "leave",
    "demo",
    "completion",
)


class _Words(click.Group):
    """A group whose words live in modules of the same name."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return [word for word in _WORDS if _lives_here(word)]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in _WORDS or not _lives_here(cmd_name):
            return None
        found: click.Command = getattr(import_module(f"{__package__}.{cmd_name}"), cmd_name)
        return found

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except GuardError as error:
            # an error may quote what was typed, or stored, and that may steer the terminal
            from .target import Target
            from .words import safe

            said = Target(ctx).said(" ".join(str(error).split()))
            click.echo(safe(f"error [{error.code}]: {said}"), err=True)
            ctx.exit(error.exit_code)


def _lives_here(word: str) -> bool:
    return find_spec(f"{__package__}.{word}") is not None


def _remember(key: str, value: Any) -> Callable[[click.Context, click.Parameter, Any], None]:
    def callback(ctx: click.Context, parameter: click.Parameter, given: Any) -> None:
        if given:
            ctx.meta[key] = value if value is not None else given

    return callback


def json_option(command: F) -> F:
    """``--json``, before or after the word."""
    return click.option(
        "--json", is_flag=True, expose_value=False, callback=_remember(JSON, True), help="Print JSON, for programs."
    )(command)


@click.group(cls=_Words, name="guard")
@json_option
def guard(**_preload: Any) -> None:
    """Jobs, dead letters, relay and store of a guarded app.

    Exit status: 0 done, 1 the answer is no, 2 typed or configured wrongly, 3 trouble with the store.
    """


def _change_directory(ctx: click.Context, parameter: click.Parameter, given: Path | None) -> None:
    if given is not None:
        import os

        os.chdir(given)


@click.group(cls=_Words, name="celery-guard", context_settings={"help_option_names": ["-h", "--help"]})
@click.option(
    "-A", "--app", envvar=["CELERY_APP", "APP"], expose_value=False, callback=_remember(APP, None), metavar="MODULE",
    help="Where the Celery app is, as for `celery -A`.",
)  # fmt: skip
@click.option(
    "--workdir", type=click.Path(exists=True, file_okay=False, path_type=Path), is_eager=True, expose_value=False,
    callback=_change_directory, help="Change to this directory first.",
)  # fmt: skip
@click.option(
    "-C", "--no-color", is_flag=True, expose_value=False, callback=_remember(COLOR, False), help="No colours."
)
@json_option
@click.version_option(package_name="celery-guard")
def main() -> None:
    """Jobs, dead letters, relay and store of a guarded Celery app.

    Exit status: 0 done, 1 the answer is no, 2 typed or configured wrongly, 3 trouble with the store.
    """
