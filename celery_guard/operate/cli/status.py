"""``guard status``: is anybody relaying, and what waits."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

import click

from celery_guard.job.state import STANDING, State

from .filters import actor_options
from .main import json_option
from .target import Target, pass_target
from .terminal import Column
from .words import ago, record, span, when

if TYPE_CHECKING:
    from celery_guard.flow.admin.actor import Actor
    from celery_guard.flow.admin.overview import Overview

__all__ = ["status"]


@click.command()
@actor_options
@json_option
@pass_target
def status(target: Target, by: Actor) -> None:
    """Who was heard lately, what waits, and for how long.

    Exit status 1 if no relay is alive while jobs are due, published or running: nobody would bring them back. With --scope: that tenant's
    jobs and replays, whether a relay is alive, and no names; exit status 1 if none is while one of those jobs waits or runs.
    """
    found = target.admin.jobs.overview(by=by)
    if target.terminal.as_json:
        target.terminal.json(
            {
                "well": found.well,
                "relays_alive": found.relays_alive,
                "next_due_in": record(found.due),
                "counts": {state.value: found.counts.get(state, 0) for state in State if state in STANDING},
                "replays": record(list(found.replays)),
                "heartbeats": None if found.heartbeats is None else record(list(found.heartbeats)),
            }
        )
    else:
        _show(target, found)
        waiting = [(state.value, found.counts[state]) for state in State if found.counts.get(state)]
        target.terminal.say()
        target.terminal.listing(
            waiting, (Column("state", lambda row: row[0]), Column("jobs", lambda row: str(row[1]))), "no jobs"
        )
    if not found.well:
        target.terminal.note(
            f"Jobs are under way and no relay is alive: start a worker, or type: {target.typed('relay')}"
        )
        click.get_current_context().exit(1)


def _show(target: Target, found: Overview) -> None:
    beats = found.heartbeats
    target.terminal.details(
        [
            ("store", target.settings.shown_store),
            ("relays", _alive(found)),
            ("due", "" if beats is None else _due(found.due)),
            ("replays", ", ".join(f"{replay.id} is {replay.state}" for replay in found.replays)),
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


def _alive(found: Overview) -> str:
    """A process that was killed says nothing, and counts as alive for a little while."""
    if not found.relays_alive:
        return "none is alive"
    heard = [ago(beat.beat) for beat in found.heartbeats or () if beat.is_relay and beat.live]
    return f"{found.relays_alive} alive" + (f", last heard {', '.join(heard)}" if heard else "")


def _due(due: timedelta | None) -> str:
    if due is None:
        return "nothing waits"
    return f"the next in {span(due)}" if due > timedelta(0) else f"the oldest for {span(due)}"
