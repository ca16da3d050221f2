"""Dead letters as people handle them: by what failed alike, closed with a reason, deleted."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import timedelta

from sqlalchemy.engine import Connection

from celery_guard.job.instant import microseconds
from celery_guard.job.letter import Handled, LetterGroup
from celery_guard.job.state import State
from celery_guard.store.answers import Replayed

from . import rows
from .count import fold_rows
from .statements import letters as statements
from .statements.sweep import BELONGINGS, forget_jobs
from .tables import job

__all__ = ["annotate", "groups", "purge", "resolve", "would_replay"]


def groups(connection: Connection, wanted: Mapping[str, str | None], limit: int) -> list[LetterGroup]:
    """Dead letters by task and cause, the largest group first."""
    filters = [(name, value) for name, value in wanted.items() if value is not None]
    found = list(connection.execute(statements.groups(filters, limit)).mappings())
    causes = [row["cause"] for row in found if row["cause"] is not None]
    types = {row[0]: row[1] for row in connection.execute(statements.types([row["sample"] for row in found]))}
    notes = {cause: (note, by) for cause, note, by in connection.execute(statements.notes(causes))}
    replayed = {row[0]: row[1] for row in connection.execute(statements.last_replays(causes))}
    made = []
    for row in found:
        first, last = rows.instant(row["first_at"]), rows.instant(row["last_at"])
        assert first is not None
        assert last is not None
        note, by = notes.get(row["cause"], ("", ""))
        made.append(
            LetterGroup(
                task=row["task"], cause=row["cause"], count=row["count"], first=first, last=last, tenants=row["tenants"],
                sample=row["sample"], type_name=types.get(row["sample"], ""), replayed=rows.instant(replayed.get(row["cause"])),
                note=note, noted_by=by,
            )
        )  # fmt: skip
    return made


def annotate(connection: Connection, cause: str, note: str, by: str) -> None:
    """Put a note to a cause, in place of the one that was there."""
    note, by = rows.storable(note), rows.storable(by)[:255]
    if not note:
        connection.execute(statements.drop_note(cause))
    elif not connection.execute(statements.change_note(cause, note, by)).rowcount:
        connection.execute(statements.add_note(cause, note, by))


def resolve(connection: Connection, ids: Sequence[str], keep: timedelta, again: bool) -> list[Handled]:
    """Close dead letters."""
    found = {row.id: State(row.state) for row in connection.execute(statements.letters(ids))}
    dead = [id for id, state in found.items() if state is State.DEAD]
    if dead:
        fold_rows(connection, dead)
        connection.execute(statements.close(dead, microseconds(keep)))
    fine = (State.DEAD, State.RESOLVED) if again else (State.DEAD,)
    return _answers(ids, {id: "" if state in fine else f"it is {state}, not dead" for id, state in found.items()})


def purge(connection: Connection, ids: Sequence[str], unreplayed: bool, again: bool) -> list[Handled]:
    """Delete letters with all that belongs to them."""
    why = {
        row.id: _kept(State(row.state), bool(row.told), row.replays or unreplayed)
        for row in connection.execute(statements.letters(ids))
    }
    gone = [id for id, reason in why.items() if not reason]
    if gone:
        fold_rows(connection, gone)
        for table in (*BELONGINGS, job):
            connection.execute(forget_jobs(table, gone))
    if again:
        # an earlier try of this very call may have deleted it
        why = {**dict.fromkeys(ids, ""), **why}
    return _answers(ids, why)


def _kept(state: State, told: bool, replayed: object) -> str:
    if state not in (State.DEAD, State.RESOLVED):
        return f"it is {state}, not dead"
    if not told:
        return "Celery has not been told of its end yet"
    return "" if replayed or state is State.RESOLVED else "it was neither replayed nor resolved"


def _answers(ids: Iterable[str], why: Mapping[str, str]) -> list[Handled]:
    reasons = ((id, why.get(id, "there is no such job")) for id in ids)
    return [Handled(id, "skipped" if reason else "done", reason) for id, reason in reasons]


def would_replay(connection: Connection, ids: Sequence[str]) -> list[Replayed]:
    """What a replay would answer now."""
    found = {row.id: row for row in connection.execute(statements.prospects(ids))}
    answers = []
    for id in ids:
        row = found.get(id)
        if row is None:
            answers.append(Replayed(id, "skipped", "there is no such job"))
        elif row.state != State.DEAD:
            answers.append(Replayed(id, "skipped", f"it is {row.state}, not dead"))
        elif row.holder is not None:
            answers.append(Replayed(id, "skipped", f"its key is held by job {row.holder} ({row.holder_state})"))
        else:
            answers.append(Replayed(id, "replayed"))
    return answers
