"""``guard status``: is anybody relaying, and what waits."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

import click

from celery_guard.job.replay import OPEN
from celery_guard.job.state import State

from .filters import actor_options
from .main import json_option
from .target import Target, pass_target
from .terminal import Column
from .words import ago, record, span, when

if TYPE_CHECKING:
    from celery_guard.flow.admin.actor import Actor
    from celery_guard.job.replay import Replay
    from celery_guard.store.protocol import Heartbeat

__all__ = ["status"]

_RELAY = "relay:"


@click.command()
@actor_options
@json_option
@pass_target
def status(target: Target, by: Actor) -> None:
    """Who was heard lately, what waits, and for how long.

    Exit status 1 if no relay is alive while jobs are due, published or running: nobody would bring them back.
    """
    beats, counts, due = target.store.heartbeats(), target.admin.jobs.counts(by=by), target.store.next_due()
    replays = target.store.replays(states=OPEN, tenant=by.tenant)
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
        _show(target, beats, relays, due, replays)
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


def _show(
    target: Target, beats: list[Heartbeat], relays: list[Heartbeat], due: timedelta | None, replays: list[Replay]
) -> None:
    target.terminal.details(
        [
            ("store", target.settings.shown_store),
            ("relays", _heard(relays)),
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
                Column("last heard", lambda beat: ago(beat.beat), whole=True),
                Column("counts as alive", lambda beat: when(beat.until) if beat.live else "no more", minor=True),
                Column("who", lambda beat: beat.token, minor=True),
                Column("detail", lambda beat: beat.detail, minor=True),
            ),
            "",
        )


def _heard(relays: list[Heartbeat]) -> str:
    """A process that was killed says nothing, and counts as alive for a little while."""
    if not relays:
        return "none is alive"
    return f"{len(relays)} alive, last heard {', '.join(ago(beat.beat) for beat in relays)}"


def _due(due: timedelta | None) -> str:
    if due is None:
        return "nothing waits"
    return f"the next in {span(due)}" if due > timedelta(0) else f"the oldest for {span(due)}"
