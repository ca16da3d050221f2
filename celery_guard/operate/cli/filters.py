"""Options that several words share: which jobs are meant, and who does it and why."""

from __future__ import annotations

import getpass
import os
from collections.abc import Callable
from typing import Any, TypeVar

import click

__all__ = ["actor_option", "limit_option", "page_options", "reason_option", "whose_options"]

F = TypeVar("F", bound=Callable[..., Any])


def whose_options(command: F) -> F:
    """``--task``, ``--queue``, ``--tenant``: only these."""
    for name in ("tenant", "queue", "task"):
        command = click.option(f"--{name}", help=f"Only of this {name}.")(command)
    return command


def limit_option(command: F) -> F:
    """``--limit``."""
    return click.option(
        "--limit", type=click.IntRange(1, 10_000), default=50, show_default=True, help="How many at most."
    )(command)


def page_options(command: F) -> F:
    """``--limit`` and ``--after``: a page at a time."""
    command = click.option("--after", metavar="ID", help="Go on after this one, the last of the page before.")(command)
    return limit_option(command)


def actor_option(command: F) -> F:
    """``--actor``: who does it."""
    return click.option(
        "--actor", default=_me, show_default="the user of this shell", help="Who does it; printed with the answer."
    )(command)


def reason_option(*, required: bool) -> Callable[[F], F]:
    """``--reason``: why it is done."""
    return click.option("--reason", required=required, metavar="TEXT", help="Why; printed with the answer.")


def _me() -> str:
    try:
        return getpass.getuser()
    except (OSError, KeyError):  # no such user in a container
        return f"uid {os.getuid()}"
