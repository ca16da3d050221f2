"""``guard dlq replay`` and its neighbours: dead letters are sent again. The command makes the replay and watches it; relays drive it."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING, Any, TextIO

import click

from celery_guard.job.replay import SAME_CAUSE_SHARE, ItemState, ReplayState

from .edit import edit_letter
from .filters import actor_options, confirm_option, letters_options, limit_option, reason_option
from .main import json_option
from .target import Target, pass_target
from .terminal import Column
from .words import ago, one_line, record, when

if TYPE_CHECKING:
    from collections.abc import Callable

    from celery_guard.flow.admin.actor import Actor
    from celery_guard.flow.admin.letters import Letters
    from celery_guard.flow.admin.replay import Preview
    from celery_guard.job.replay import Replay

__all__ = ["abort", "pause", "replay", "replays", "resume"]

#: How often a watched replay is looked at, in seconds.
_LOOK = 0.5

_GOES_ON = (ReplayState.BUILDING, ReplayState.RUNNING)


@click.command()
@letters_options
@click.option(
    "--rate", type=click.FloatRange(0, 1000, min_open=True), default=10, show_default=True, help="Jobs a second."
)
@click.option("--cap", type=click.IntRange(1), help="So many jobs of one tenant may be on their way at a time.")
@click.option(
    "--stop-share", type=click.IntRange(0, 100), default=20, show_default=True,
    help="Stop when more than so many per cent of a wave have failed again.",
)  # fmt: skip
@click.option(
    "--same-cause", type=click.IntRange(0, 100), default=SAME_CAUSE_SHARE, show_default=True,
    help="Stop when more than so many per cent of what was sent, and at least two, have died again of the cause they had died of.",
)  # fmt: skip
@click.option("--preview", is_flag=True, help="Only say what it would do.")
@click.option(
    "--watch/--no-watch",
    default=None,
    help="Stay and show how it goes; on a terminal it does. Leaving does not end it.",
)
@click.option(
    "--edit", is_flag=True,
    help="Correct the arguments of one letter in an editor, and send it with them. Takes --role admin and a --reason.",
)  # fmt: skip
@click.option(
    "--arguments", type=click.File(encoding="utf-8"), metavar="FILE",
    help='The same with the arguments from a file (-: from stdin): {"args": [...], "kwargs": {...}}.',
)  # fmt: skip
@reason_option(required=False)
@confirm_option
@actor_options
@json_option
@pass_target
def replay(
    target: Target, /, letters: Letters, by: Actor, preview: bool, watch: bool | None, reason: str | None, edit: bool,
    arguments: TextIO | None, **how: Any,
) -> None:  # fmt: skip
    """Send dead letters again: a frozen set, in growing waves, at a rate; it stops itself when they fail again.

    Counts begin anew, message and history stay. Exit status 1 if some are skipped, or it did not come to its end while it was watched.
    """
    target.load_tasks()
    if edit or arguments is not None:
        edit_letter(target, letters, by, reason, arguments, preview)
        return
    dlq = target.admin.dlq
    seen = dlq.replays.preview(letters, by=by)
    if not target.terminal.as_json:
        _show_preview(target.terminal.say if preview else target.terminal.note, seen)
    if preview:
        if target.terminal.as_json:
            target.terminal.json({"preview": seen})
        return
    begun = dlq.replays.begin(letters, by=by, reason=reason or "", **how)
    dlq.replays.step(begun)
    if target.terminal.as_json:
        target.terminal.json({"preview": seen, "replay": begun})
    else:
        target.terminal.say(
            f"replay {begun.id} of {begun.total} jobs has begun, by {by.name}: {one_line(begun.reason)}"
        )
        _say_who_drives(target, begun.id)
    if watch or (watch is None and sys.stdout.isatty() and not target.terminal.as_json):
        begun = _watched(target, begun.id, by)
    if seen.skipped or begun.state not in (*_GOES_ON, ReplayState.DONE):
        click.get_current_context().exit(1)


def _show_preview(say: Callable[[str], None], seen: Preview) -> None:
    say(f"{seen.count} dead letters, {seen.would_go} would be sent again")
    for what, counts in (("tasks", seen.tasks), ("tenants", seen.tenants)):
        if any(counts):
            say(
                f"  {what}: "
                + ", ".join(f"{one_line(name) or '-'} {number}" for name, number in counts.most_common(20))
            )
    for why, number in seen.skipped.most_common():
        say(f"  {number} would be skipped: {one_line(why)}")


def _say_who_drives(target: Target, id: str) -> None:
    alive = any(beat.live and beat.is_relay for beat in target.store.heartbeats())
    look = target.typed("dlq", "replays", id)
    target.terminal.note(
        f"Look at it: {look}"
        if alive
        else f"No relay is alive, and relays drive it: {target.typed('relay')}. Look at it: {look}"
    )


def _watched(target: Target, id: str, by: Actor) -> Replay:
    """Show how it goes until it does not go on by itself."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    replays = target.admin.dlq.replays
    found = replays.show(id, by=by)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True, disable=not sys.stderr.isatty()) as bar:
        shown = bar.add_task("", total=found.total)
        while found.state in _GOES_ON:
            bar.update(shown, completed=_over(found), description=f"replay {id}, wave {found.wave}: {_counts(found)}")
            time.sleep(_LOOK)
            found = replays.show(id, by=by)
    target.terminal.say(_line(found))
    _say_what_next(target, found)
    return found


def _say_what_next(target: Target, found: Replay) -> None:
    if found.state is ReplayState.STOPPED:
        groups, resume, abort = (
            target.typed("dlq", *words) for words in (["groups"], ["resume", found.id], ["abort", found.id])
        )
        target.terminal.note(f"It has stopped itself. See what failed: {groups}. Then type: {resume}, or: {abort}")


def _over(found: Replay) -> int:
    on_way = (ItemState.WAITING, ItemState.RELEASED, ItemState.FAILING)
    return sum(number for state, number in found.counts.items() if state not in on_way)


def _counts(found: Replay) -> str:
    return ", ".join(f"{found.counts[state]} {state}" for state in ItemState if found.counts.get(state))


def _line(found: Replay) -> str:
    why = f" ({one_line(found.why)})" if found.why else ""
    return f"replay {found.id} is {found.state}{why}: {_counts(found) or f'{found.total} jobs'}"


_COLORS = {"running": "cyan", "done": "green", "stopped": "red", "paused": "yellow"}

_REPLAYS: tuple[Column[Replay], ...] = (
    Column("id", lambda each: each.id, whole=True),
    Column("state", lambda each: str(each.state), color=lambda state: _COLORS.get(state, "")),
    Column("jobs", lambda each: str(each.total), whole=True),
    Column("on", lambda each: each.target),
    Column("by", lambda each: each.actor),
    Column("reason", lambda each: each.reason),
    Column("begun", lambda each: ago(each.created), whole=True, minor=True),
    Column("why", lambda each: each.why),
    Column("tenant", lambda each: each.tenant or "", minor=True),
)


@click.command()
@click.argument("id", required=False)
@limit_option
@actor_options
@json_option
@pass_target
def replays(target: Target, id: str | None, limit: int, by: Actor) -> None:
    """Replays, the newest first; or one of them, with its counts, what has failed again and what it skipped."""
    if id is None:
        found = target.admin.dlq.replays.list(by=by, limit=limit)
        if target.terminal.as_json:
            target.terminal.json(found)
        else:
            target.terminal.listing(found, _REPLAYS, "no replays")
        return
    asked = target.admin.dlq.replays
    one, failed, skipped = (
        asked.show(id, by=by), asked.failed(id, by=by, limit=limit), asked.skipped(id, by=by, limit=limit),
    )  # fmt: skip
    if target.terminal.as_json:
        target.terminal.json({**record(one), "counts": dict(one.counts), "failed": failed, "skipped": skipped})
        return
    target.terminal.details(
        [
            ("id", one.id), ("state", str(one.state)), ("why", one.why), ("jobs", f"{one.total}: {_counts(one)}"), ("on", one.target),
            ("by", f"{one.actor} ({one.role}) from {one.origin}"), ("reason", one.reason), ("tenant", one.tenant or ""),
            ("wave", str(one.wave)), ("begun", when(one.created)), ("ended", when(one.ended)),
        ]
    )  # fmt: skip
    for each in failed:
        why = f": {one_line(each.why)}" if each.why else ""
        target.terminal.say(f"{one_line(each.id)}  {each.answer} again{why}")
    for each in skipped:
        target.terminal.say(f"{one_line(each.id)}  skipped: {one_line(each.why)}")
    _say_what_next(target, one)


def _moves(name: str, help: str) -> click.Command:
    @click.command(name, help=help)
    @click.argument("id")
    @reason_option(required=True)
    @actor_options
    @json_option
    @pass_target
    def move(target: Target, id: str, reason: str, by: Actor) -> None:
        found = getattr(target.admin.dlq.replays, name)(id, by=by, reason=reason)
        if target.terminal.as_json:
            target.terminal.json(found)
        else:
            target.terminal.say(_line(found))

    return move


pause = _moves("pause", "Send no more of a replay until it is resumed; what is on its way is not called back.")
resume = _moves("resume", "Go on with a replay that was paused or has stopped itself; the ramp begins anew.")
abort = _moves("abort", "End a replay for good; what it did not send stays a dead letter.")
