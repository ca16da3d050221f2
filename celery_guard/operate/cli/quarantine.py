"""``guard quarantine``: messages that nobody could open. What is in them is shown only where it is asked for."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from .dlq import legible
from .filters import actor_options, limit_option, reason_option
from .main import json_option
from .target import Target, pass_target
from .terminal import Column
from .words import ago, record, when

if TYPE_CHECKING:
    from celery_guard.flow.admin.actor import Actor
    from celery_guard.flow.admin.quarantine import HandledMessage
    from celery_guard.store.protocol import Quarantined

__all__ = ["quarantine"]

#: May hold arguments.
_CONTENTS = ("headers", "body")


@click.group()
def quarantine() -> None:
    """Messages that nobody could open."""


@quarantine.command("list")
@click.option("--all", "handled", is_flag=True, help="Also those that were released or discarded.")
@click.option("--before", type=int, metavar="NUMBER", help="Go on before this one, the last of the page before.")
@limit_option
@actor_options
@json_option
@pass_target
def list_(target: Target, handled: bool, before: int | None, limit: int, by: Actor) -> None:
    """Messages in quarantine, the newest first, without what is in them."""
    found = target.admin.quarantine.list(by=by, limit=limit + 1, handled=handled, before=before)
    page = found[:limit]
    if target.terminal.as_json:
        target.terminal.json([record(message, _CONTENTS) for message in page])
        return
    columns: tuple[Column[Quarantined], ...] = (
        Column("number", lambda message: str(message.id), whole=True),
        Column("received", lambda message: ago(message.received)),
        Column("queue", lambda message: message.queue),
        Column("type", lambda message: message.content_type),
        Column("bytes", lambda message: str(message.size)),
        Column("state", lambda message: "" if message.state == "kept" else message.state),
        Column("reason", lambda message: message.reason),
    )
    target.terminal.listing(page, columns, "nothing in quarantine")
    if len(found) > limit:
        target.terminal.note(f"There are more: --limit, or --before {page[-1].id}")


@quarantine.command()
@click.argument("number", type=int)
@click.option("--reveal", is_flag=True, help="With headers and body, as they were. Takes --role admin and a --reason.")
@reason_option(required=False)
@actor_options
@json_option
@pass_target
def show(target: Target, number: int, reveal: bool, reason: str | None, by: Actor) -> None:
    """One message in quarantine. It is never unpickled to look inside."""
    admin = target.admin.quarantine
    message = admin.reveal(number, by=by, reason=reason or "") if reveal else admin.get(number, by=by)
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
            ("state", message.state),
            (message.state, when(message.handled)),
            ("why", message.why),
            ("size", f"{message.size} bytes" + ("" if reveal else " (--reveal --role admin --reason TEXT shows them)")),
            *shown.items(),
        ]
    )


@quarantine.command()
@click.argument("numbers", nargs=-1, required=True, type=int, metavar="NUMBER...")
@click.option("--to", "queue", metavar="QUEUE", help="Onto this queue, instead of the one that each came from.")
@click.option("--again", is_flag=True, help="Also what somebody began to release, and which may have gone out.")
@reason_option(required=True)
@actor_options
@json_option
@pass_target
def release(target: Target, numbers: tuple[int, ...], queue: str | None, again: bool, reason: str, by: Actor) -> None:
    """Put messages back on their queue, as they were, after the cause is mended.

    What still cannot be opened comes back under a new number. Exit status 1 if one was skipped, or may not have gone
    out.
    """
    try:
        answers = target.admin.quarantine.release(numbers, by=by, reason=reason, queue=queue, again=again)
    except ConnectionError as error:
        raise click.ClickException(
            f"{error}. What it has not taken is still in quarantine; type this again."
        ) from error
    _answer(target, answers, by, reason)


@quarantine.command()
@click.argument("numbers", nargs=-1, required=True, type=int, metavar="NUMBER...")
@reason_option(required=True)
@actor_options
@json_option
@pass_target
def discard(target: Target, numbers: tuple[int, ...], reason: str, by: Actor) -> None:
    """Give messages up. They are seen with `list --all` for 30 days. Exit status 1 if one was skipped."""
    _answer(target, target.admin.quarantine.discard(numbers, by=by, reason=reason), by, reason)


@quarantine.command()
@click.argument("queue")
@click.option(
    "--limit", type=click.IntRange(1, 1_000_000), default=10_000, show_default=True, help="How many messages at most."
)
@reason_option(required=True)
@actor_options
@json_option
@pass_target
def drain(target: Target, queue: str, limit: int, reason: str, by: Actor) -> None:
    """Take what a broker has set aside in QUEUE into quarantine: RabbitMQ's dead-letter queue.

    Each message is kept before the broker hears that it may forget it, so none is lost; one that is taken twice is kept once. A queue that the app's
    own tasks travel over is refused.
    """
    try:
        with target.terminal.progress("draining", limit) as tick:
            done = target.admin.quarantine.drain(queue, by=by, reason=reason, limit=limit, progress=tick)
    except ConnectionError as error:
        raise click.ClickException(f"{error}. What was not kept is still with the broker; type this again.") from error
    if target.terminal.as_json:
        target.terminal.json({"queue": queue, "drained": done, "actor": by.name, "reason": reason})
        return
    target.terminal.say(f"{done} drained")
    if done:
        target.terminal.note(f"Look at them: {target.typed('quarantine', 'list')}")
    else:
        target.terminal.note(f"There is nothing in the queue {queue}, or no such queue: look at its spelling.")


def _answer(target: Target, answers: list[HandledMessage], by: Actor, reason: str) -> None:
    if target.terminal.as_json:
        target.terminal.json([{**record(answer), "actor": by.name, "reason": reason} for answer in answers])
    else:
        for answer in answers:
            why = f": {answer.why}" if answer.why else ""
            target.terminal.say(f"{answer.number}  {answer.answer}{why}")
        target.terminal.note(f"by {by.name}: {reason}")
    if any(answer.answer in ("skipped", "unknown") for answer in answers):
        click.get_current_context().exit(1)
