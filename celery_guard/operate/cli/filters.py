"""Options that several words share: which jobs are meant, and who does it and why."""

from __future__ import annotations

import functools
import re
import sys
from collections.abc import Callable
from datetime import timedelta
from typing import Any, TypeVar

import click

from celery_guard.contract.failure_class import FailureClass
from celery_guard.flow.admin.actor import Actor, Role, user_name
from celery_guard.flow.admin.letters import Letters

__all__ = [
    "AGE",
    "actor_options",
    "confirm_option",
    "letters_options",
    "limit_option",
    "page_options",
    "reason_option",
    "whose_options",
]

F = TypeVar("F", bound=Callable[..., Any])

_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400}


class _Age(click.ParamType):  # type: ignore[type-arg, unused-ignore]
    """An age: a number with a unit."""

    name = "age"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> timedelta:
        if isinstance(value, timedelta):
            return value
        found = re.fullmatch(r"(\d{1,9})\s*([smhd]?)", str(value).strip())
        if found is None:
            self.fail(f"{value!r} is no age; type a number with a unit: 90s, 15m, 2h, 7d", param, ctx)
        return timedelta(seconds=int(found[1]) * _UNITS[found[2] or "s"])


AGE = _Age()


def whose_options(command: F) -> F:
    """``--task``, ``--queue``, ``--tenant``: only these."""
    for name in ("tenant", "queue", "task"):
        command = click.option(f"--{name}", help=f"Only of this {name}.")(command)
    return command


def letters_options(command: F) -> F:
    """Ids, a filter, or ``--all``; the command is given :class:`Letters`."""

    @functools.wraps(command)
    def with_letters(*args: Any, ids_: tuple[str, ...], all_: bool, **kwargs: Any) -> Any:
        which = {name: kwargs.pop(f"{name}_") for name in _FILTERS}
        said = [name for name, value in which.items() if value is not None]
        if bool(ids_) + bool(said) + all_ != 1:
            raise click.UsageError("Say which letters: their ids, or a filter, or --all; not two of these.")
        return command(*args, letters=Letters(ids=ids_, **which), **kwargs)

    with_letters = click.argument("ids_", nargs=-1, metavar="[ID...]")(with_letters)
    with_letters = click.option("--all", "all_", is_flag=True, help="All there are.")(with_letters)
    for name, (option, kind, help) in reversed(_FILTERS.items()):
        with_letters = click.option(f"--{option}", f"{name}_", type=kind, help=help)(with_letters)
    return with_letters  # type: ignore[return-value]


_FILTERS: dict[str, tuple[str, Any, str]] = {
    "task": ("task", str, "Only of this task."),
    "queue": ("queue", str, "Only of this queue."),
    "tenant": ("tenant", str, "Only of this tenant."),
    "cause": ("cause", str, "Only of this cause group: what failed alike."),
    "failure_class": (
        "failure-class",
        click.Choice([str(found) for found in FailureClass]),
        "Only last failed like this.",
    ),
    "older": ("older", AGE, "Only died longer ago: 2h, 7d."),
    "younger": ("younger", AGE, "Only died more recently: 2h, 7d."),
}


def limit_option(command: F) -> F:
    """``--limit``."""
    return click.option(
        "--limit", type=click.IntRange(1, 10_000), default=50, show_default=True, help="How many at most."
    )(command)


def page_options(command: F) -> F:
    """``--limit`` and ``--after``: a page at a time."""
    command = click.option("--after", metavar="ID", help="Go on after this one, the last of the page before.")(command)
    return limit_option(command)


def actor_options(command: F) -> F:
    """``--actor``, ``--role``, ``--scope``: who does it; the command is given an :class:`Actor` as ``by``."""

    @functools.wraps(command)
    def with_actor(*args: Any, actor_: str, role_: str, scope_: str | None, **kwargs: Any) -> Any:
        return command(*args, by=Actor(actor_, Role(role_), scope_), **kwargs)

    options = (
        click.option(
            "--actor", "actor_", default=user_name, show_default="the user of this shell", metavar="NAME",
            help="Who does it; the audit keeps it.",
        ),
        click.option(
            "--role", "role_", type=click.Choice([str(role) for role in Role]), default=str(Role.OPERATOR), show_default=True,
            help="As what; what shows secrets or cannot be undone takes an admin.",
        ),
        click.option("--scope", "scope_", metavar="TENANT", help="See and touch this tenant only."),
    )  # fmt: skip
    for option in reversed(options):
        with_actor = option(with_actor)
    return with_actor  # type: ignore[return-value]


def confirm_option(command: F) -> F:
    """``--confirm``: how many jobs may be touched."""
    return click.option(
        "--confirm",
        type=click.IntRange(1),
        metavar="NUMBER",
        help="Touch up to so many jobs, where that is more than confirm_above.",
    )(command)


def reason_option(*, required: bool) -> Callable[[F], F]:
    """``--reason``: why it is done. One that is required is asked for on a terminal."""
    if not required:
        return click.option("--reason", metavar="TEXT", help="Why; the audit keeps it.")
    help = "Why; the audit keeps it. Required; on a terminal it is asked for."
    return click.option("--reason", metavar="TEXT", callback=_why, help=help)


def _why(ctx: click.Context, parameter: click.Parameter, given: str | None) -> str | None:
    if given is not None or ctx.resilient_parsing:
        return given
    if not sys.stdin.isatty():
        raise click.MissingParameter(ctx=ctx, param=parameter)
    said: str = click.prompt("Why? The audit keeps it", err=True)
    return said
