"""``guard keys``: make a key, see which keys what is stored takes, put all of it under the first one."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from .filters import actor_options, reason_option
from .main import json_option
from .target import Target, pass_target
from .terminal import Column
from .words import record

if TYPE_CHECKING:
    from celery_guard.flow.admin.actor import Actor
    from celery_guard.flow.admin.keys import KeyUse

__all__ = ["keys"]

_KEYS: tuple[Column[KeyUse], ...] = (
    Column("key", lambda use: use.key, whole=True),
    Column("here", lambda use: use.here, whole=True, color=lambda word: "red" if word == "missing" else ""),
    Column("messages", lambda use: str(use.messages), whole=True),
    Column("results", lambda use: str(use.results), whole=True),
    Column("failures", lambda use: str(use.failures), whole=True),
)


@click.group()
def keys() -> None:
    """Keys of what is encrypted."""


@keys.command()
def new() -> None:
    """Print a new key, for encryption_keys. It is kept nowhere."""
    from celery_guard.job.encryption import new_key

    click.echo(new_key())


@keys.command()
@actor_options
@json_option
@pass_target
def status(target: Target, by: Actor) -> None:
    """Which keys this process has, and how much of what is stored takes each.

    A key that nothing takes any more may be removed once nothing under it is on the broker either. Exit status 1 when something takes a key that
    is missing here. Reads every row once.
    """
    found = target.admin.keys.status(by=by)
    if target.terminal.as_json:
        target.terminal.json(found)
    else:
        target.terminal.listing(found, _KEYS, "no keys, and nothing is encrypted")
    if any(use.here == "missing" for use in found):
        target.terminal.note("What takes a missing key waits for a process that has it: add it to encryption_keys.")
        click.get_current_context().exit(1)


@keys.command()
@reason_option(required=True)
@actor_options
@json_option
@pass_target
def rotate(target: Target, by: Actor, reason: str) -> None:
    """Put everything that is stored encrypted under the first key.

    May run beside everything else, be stopped, and be typed again. Exit status 1 when something was left.
    """
    done = target.admin.keys.rotate(by=by, reason=reason)
    if target.terminal.as_json:
        target.terminal.json({**record(done), "actor": by.name})
    else:
        for one in done.damaged[:20]:
            target.terminal.say(f"{one}: it does not open with the key that it names")
        target.terminal.note(f"{done}, by {by.name}")
    if done.unknown or done.damaged:
        click.get_current_context().exit(1)
