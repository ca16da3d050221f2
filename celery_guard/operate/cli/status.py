"""``guard status``: is anybody relaying, and what waits."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

import click

from celery_guard.job.replay import OPEN
from celery_guard.job.state import State

from .main import json_option
from .target import Target, pass_target
from .terminal import Column
from .words import ago, record, span

if TYPE_CHECKING:
    from celery_guard.job.replay import Replay
    from celery_guard.store.protocol import Heartbeat

__all__ = ["status"]

_RELAY = "relay:"


@click.command()
@json_option
@pass_target
def status(target: Target) -> None:
    """Who is alive, what waits, and for how long.

    Exit status 1 if no relay is alive while jobs are due, published or running: nobody would bring them back.
    """
    beats, counts, due = target.store.heartbeats(), target.store.counts(), target.store.next_due()
    replays = target.store.replays(states=OPEN)
    relays = [beat for beat in beats if beat.name.startswith(_RELAY) and beat.live]
    is_due = due is not None and due <= timedelta(0)
    stuck = not relays and (is_due or any(counts.get(state) for state in (State.SENT, State.RUNNING)))
    if target.terminal.as_json:
        target.terminal.json(
            {
                "well": not stuck,
                "relays_alive": len(relays),
                "next_due_in": record(due),
                "counts": {state.value: counts.get(state, 0) for state in State},
                "replays": record(replays),
                "heartbeats": record(list(beats)),
            }
        )
    else:
        _show(target, beats, len(relays), due, replays)
        waiting = [(state.value, counts[state]) for state in State if counts.get(state)]
        target.terminal.say()
        target.terminal.listing(
            waiting, (Column("state", lambda row: row[0]), Column("jobs", lambda row: str(row[1]))), "no jobs"
        )
    if stuck:
        target.terminal.note(
            f"Jobs are under way and no relay is alive: start a worker, or type: {target.typed('relay')}"
        )
        click.get_current_context().exit(1)


def _show(target: Target, beats: list[Heartbeat], relays: int, due: timedelta | None, replays: list[Replay]) -> None:
    target.terminal.details(
        [
            ("store", target.settings.shown_store),
            ("relays", f"{relays} alive" if relays else "none is alive"),
            ("due", _due(due)),
            ("replays", ", ".join(f"{replay.id} is {replay.state}" for replay in replays)),
        ]
    )
    if beats:
        target.terminal.say()
        target.terminal.listing(
            beats,
            (
                Column("name", lambda beat: beat.name, whole=True),
                Column("alive", lambda beat: "yes" if beat.live else "no"),
                Column("last seen", lambda beat: ago(beat.beat)),
                Column("who", lambda beat: beat.token, minor=True),
                Column("detail", lambda beat: beat.detail, minor=True),
            ),
            "",
        )


def _due(due: timedelta | None) -> str:
    if due is None:
        return "nothing waits"
    return f"the next in {span(due)}" if due > timedelta(0) else f"the oldest for {span(due)}"
