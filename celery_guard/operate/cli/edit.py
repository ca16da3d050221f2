"""``guard dlq replay ID --edit``: the arguments of one dead letter are corrected, in an editor or from a file, and it is sent again with them."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, TextIO

import click

from celery_guard.errors import EditRefused
from celery_guard.flow.admin.edit import Call

from .target import Target
from .words import one_line

if TYPE_CHECKING:
    from celery_guard.flow.admin.actor import Actor
    from celery_guard.flow.admin.edit import Edited
    from celery_guard.flow.admin.letters import Letters

__all__ = ["edit_letter"]

#: What makes no sense for a single letter, which goes at once.
_OF_MANY = ("rate", "cap", "stop_share", "same_cause", "confirm", "watch")


def edit_letter(
    target: Target, letters: Letters, by: Actor, reason: str | None, arguments: TextIO | None, preview: bool
) -> None:
    """Have a person edit the letter, or take the arguments from a file; then send it, or only say what would change."""
    ctx = click.get_current_context()
    said = [name for name in _OF_MANY if ctx.get_parameter_source(name) is click.core.ParameterSource.COMMANDLINE]
    if said:
        raise click.UsageError(
            f"--{said[0].replace('_', '-')} is for a replay of many; one that is edited goes at once."
        )
    if len(letters.ids) != 1:
        raise click.UsageError("Only one letter is edited at a time: say its id.")
    id, edits = letters.ids[0], target.admin.dlq.edits
    if arguments is not None:
        call = _read(arguments.read(), target.admin.dlq.show(id, by=by).generation)
        edited = edits.preview(id, call, by=by) if preview else edits.replay(id, call, by=by, reason=reason or "")
    else:
        edited = _by_hand(target, id, by, reason or "", preview)
    _say(target, edited, by, preview)


def _by_hand(target: Target, id: str, by: Actor, reason: str, preview: bool) -> Edited:
    """Open an editor until what is saved is taken, or the person gives up. What was typed is not lost meanwhile."""
    edits = target.admin.dlq.edits
    shown = edits.read(id, by=by, reason=reason)
    text = _written(shown)
    while True:
        saved = click.edit(text, extension=".json")
        if saved is None:
            raise EditRefused(f"Job {id}: nothing was saved in the editor, and nothing was changed.")
        try:
            call = _read(saved, shown.generation)
            return edits.preview(id, call, by=by) if preview else edits.replay(id, call, by=by, reason=reason)
        except EditRefused as refused:
            if not sys.stdin.isatty():
                raise
            target.terminal.note(f"error [{refused.code}]: {refused}")
            if not click.confirm("Open the editor again?", default=True, err=True):
                raise
            text = saved


def _written(call: Call) -> str:
    """The call as JSON, in Celery's spelling of what JSON does not have. Raises ``EditRefused`` where that would not come back equal."""
    from kombu.utils.json import dumps, loads

    from celery_guard.contract.codec import first_difference

    document = {"args": call.args, "kwargs": call.kwargs}
    try:
        text: str = dumps(document, indent=2, ensure_ascii=False)
        difference = first_difference(document, loads(text), "the call")
        why = "" if difference is None else str(difference)
    except (TypeError, ValueError) as error:
        text, why = "", str(error)
    if why:
        raise EditRefused(f"These arguments cannot be shown as JSON ({why}). Edit them from Python: guard.dlq.edits.")
    return text + "\n"


def _read(text: str, generation: int) -> Call:
    """The call that was typed; what it leaves out stays as it was."""
    from kombu.utils.json import loads

    form = 'It is {"args": [...], "kwargs": {...}}; one that is left out stays as it was.'
    try:
        document = loads(text)
    except (TypeError, ValueError) as error:
        raise EditRefused(f"The arguments are no JSON: {error}. {form}") from error
    if not isinstance(document, Mapping) or set(document) - {"args", "kwargs"} or not document:
        raise EditRefused(f"The arguments are JSON of another form. {form}")
    args, kwargs = document.get("args", []), document.get("kwargs", {})
    if not isinstance(args, list) or not isinstance(kwargs, Mapping):
        raise EditRefused(f"The arguments are JSON of another form. {form}")
    return Call(document.get("args"), document.get("kwargs"), generation)


def _say(target: Target, edited: Edited, by: Actor, preview: bool) -> None:
    if target.terminal.as_json:
        target.terminal.json({"preview" if preview else "edited": edited})
        return
    for change in edited.changes:
        target.terminal.say(f"  {one_line(str(change))}")
    if preview:
        target.terminal.note(f"{edited.id} would be sent again with message {edited.generation}")
        return
    target.terminal.say(f"{edited.id} is sent again with message {edited.generation}, by {by.name}")
    was = target.typed("dlq", "show", edited.id, "--reveal", "--generation", str(edited.generation - 1))
    target.terminal.note(f"The message before it stays: {was}")
