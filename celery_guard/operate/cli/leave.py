"""``guard leave``: what the guard still holds, for somebody who takes it out."""

from __future__ import annotations

import click

from celery_guard.job.row import Job
from celery_guard.job.state import State

from .main import json_option
from .target import Target, pass_target
from .terminal import Column
from .words import ago

__all__ = ["leave"]

#: What only the guard can bring to its end.
_UNFINISHED = (State.PENDING, State.SENT, State.RUNNING, State.UNKNOWN)
#: What only the guard can repair.
_REPAIRABLE = (State.DEAD,)
_SHOWN = 20


@click.command()
@json_option
@pass_target
def leave(target: Target) -> None:
    """Say what is left before the guard can be taken out.

    Exit status 0 when no job waits or runs any more; 1 while some do. Changes nothing. The order of taking it out: docs/howto/adopt.md.
    """
    target.store.check()
    counts = target.store.counts(states=(*_UNFINISHED, *_REPAIRABLE))
    unfinished = sum(counts.get(state, 0) for state in _UNFINISHED)
    dead = sum(counts.get(state, 0) for state in _REPAIRABLE)
    jobs = target.store.jobs(states=_UNFINISHED, limit=_SHOWN) if unfinished else []
    leaving = target.settings.leaving
    if target.terminal.as_json:
        shown = [{"id": job.id, "task": job.task, "state": job.state.value, "reason": _reason(job)} for job in jobs]
        target.terminal.json({"leaving": leaving, "unfinished": unfinished, "dead": dead, "jobs": shown})
    else:
        _say(target, leaving, unfinished, dead, jobs)
    if unfinished:
        click.get_current_context().exit(1)


def _say(target: Target, leaving: bool, unfinished: int, dead: int, jobs: list[Job]) -> None:
    say = target.terminal.say
    if not leaving:
        target.terminal.note(
            "The setting `leaving` is off here: calls still become rows. Set it for publishers and workers first."
        )
    if not unfinished:
        say("No job waits or runs. Workers and relays can go on without the guard.")
    else:
        say(f"{unfinished} unfinished, which only the guard can end. Keep guarded workers and a relay running.")
        say()
        target.terminal.listing(
            jobs,
            (
                Column("id", lambda job: job.id, whole=True),
                Column("task", lambda job: job.task),
                Column("state", lambda job: job.state.value),
                Column("reason", _reason),
                Column("accepted", lambda job: ago(job.created)),
            ),
            "",
        )
    if dead:
        say(f"{dead} dead letters stay in the store. Replay what is still wanted before you go; nothing else can.")


def _reason(job: Job) -> str:
    return str(job.reason or "")
