"""``guard quarantine``: messages that nobody could open. What is in them is shown only where it is asked for."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from .dlq import legible
from .filters import limit_option
from .main import json_option
from .target import Target, pass_target
from .terminal import Column
from .words import ago, record, when

if TYPE_CHECKING:
    from celery_guard.store.protocol import Quarantined

__all__ = ["quarantine"]

#: May hold arguments.
_CONTENTS = ("headers", "body")


@click.group()
def quarantine() -> None:
    """Messages that nobody could open."""


@quarantine.command("list")
@limit_option
@json_option
@pass_target
def list_(target: Target, limit: int) -> None:
    """Messages in quarantine, the newest first, without what is in them."""
    found = target.store.quarantined(limit)
    if target.terminal.as_json:
        target.terminal.json([record(message, _CONTENTS) for message in found])
        return
    columns: tuple[Column[Quarantined], ...] = (
        Column("number", lambda message: str(message.id), whole=True),
        Column("received", lambda message: ago(message.received)),
        Column("queue", lambda message: message.queue),
        Column("type", lambda message: message.content_type),
        Column("bytes", lambda message: str(message.size)),
        Column("reason", lambda message: message.reason),
    )
    target.terminal.listing(found, columns, "nothing in quarantine")


@quarantine.command()
@click.argument("number", type=int)
@click.option("--reveal", is_flag=True, help="With headers and body, as they were.")
@json_option
@pass_target
def show(target: Target, number: int, reveal: bool) -> None:
    """One message in quarantine. It is never unpickled to look inside."""
    message = target.store.message(number)
    if message is None:
        target.terminal.note(f"There is no message {number} in quarantine.")
        click.get_current_context().exit(1)
    shown = {"headers": message.headers, "body": legible(message.body)} if reveal else {}
    if target.terminal.as_json:
        target.terminal.json({**record(message, _CONTENTS), **shown})
        return
    target.terminal.details(
        [
            ("number", str(message.id)),
            ("received", when(message.received)),
            ("queue", message.queue),
            ("type", message.content_type),
            ("encoding", message.content_encoding),
            ("reason", message.reason),
            ("size", f"{message.size} bytes" + ("" if reveal else " (--reveal shows them)")),
            *shown.items(),
        ]
    )
