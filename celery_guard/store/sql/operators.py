"""What operators ask of an SQL store: :class:`~celery_guard.store.operators.Operators` on SQLite, PostgreSQL, MySQL and MariaDB."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from sqlalchemy.exc import IntegrityError
from sqlalchemy.sql.selectable import Select

from celery_guard.job.audit import AuditEntry, NewAudit, Outcome
from celery_guard.job.ciphertext import Ciphertext
from celery_guard.job.letter import Handled, LetterGroup
from celery_guard.job.replay import NewReplay, Progress, Replay, ReplayState
from celery_guard.store.answers import Replayed
from celery_guard.store.calls import BATCH, batches

from . import audit, ciphertexts, letters, replays
from .opened import OpenStore
from .statements import replays as replay_statements

__all__ = ["SqlOperators"]


class SqlOperators(OpenStore):
    """The part of a store that people work with."""

    # -- audit ----------------------------------------------------------------------------------------------------

    def audit(self, rows: Sequence[NewAudit]) -> None:
        """Append rows to the audit, in their order."""
        for batch in batches(rows):
            self._append(batch)

    def _append(self, batch: list[NewAudit]) -> None:
        self._database.begin(lambda connection, again: audit.append(connection, batch))

    def audited(
        self,
        *,
        actor: str | None = None,
        action: str | None = None,
        outcome: Outcome | None = None,
        job: str | None = None,
        tenant: str | None = None,
        entry: str | None = None,
        since: timedelta | None = None,
        limit: int = 100,
        after: int | None = None,
    ) -> list[AuditEntry]:
        """Rows of the audit, newest first."""
        word = None if outcome is None else outcome.value
        wanted = {
            "actor": actor, "action": action, "outcome": word, "job": job, "tenant": tenant, "entry": entry,
        }  # fmt: skip
        return self._database.each(lambda connection, again: audit.listed(connection, wanted, since, limit, after))

    def retain_audit(self, keep: timedelta, limit: int) -> int:
        """Delete up to ``limit`` rows that are older than ``keep``."""
        numbers = self._database.each(lambda connection, again: audit.old(connection, keep, min(limit, BATCH)))
        # most of the time there are none, and nothing is written
        return self._database.each(lambda connection, again: audit.forget(connection, numbers)) if numbers else 0

    # -- keys -----------------------------------------------------------------------------------------------------

    def ciphertexts(
        self, limit: int, after: str | None = None, *, but: str | None = None, brief: bool = False
    ) -> tuple[list[Ciphertext], str | None]:
        """What is encrypted with another key than ``but``, a page at a time."""
        return self._database.each(lambda connection, again: ciphertexts.page(connection, limit, after, but, brief))

    def reencrypt(self, was: Ciphertext, text: str) -> bool:
        """Put a ciphertext in the place of ``was``."""
        return self._database.each(lambda connection, again: ciphertexts.reencrypt(connection, was, text, again))

    # -- dead letters ---------------------------------------------------------------------------------------------

    def groups(self, *, task: str | None = None, tenant: str | None = None, limit: int = 100) -> list[LetterGroup]:
        """Dead letters by task and cause, the largest group first."""
        wanted = {"task": task, "tenant": tenant}
        return self._database.each(lambda connection, again: letters.groups(connection, wanted, limit))

    def annotate(self, cause: str, note: str, by: str) -> None:
        """Put a note to a cause."""
        try:
            self._database.begin(lambda connection, again: letters.annotate(connection, cause, note, by))
        except IntegrityError:
            # another put the first one at this moment: this is the second
            self._database.begin(lambda connection, again: letters.annotate(connection, cause, note, by))

    def resolve(self, ids: Sequence[str], keep: timedelta) -> list[Handled]:
        """Close dead letters."""

        def close(batch: list[str]) -> list[Handled]:
            return self._database.begin(lambda connection, again: letters.resolve(connection, batch, keep, again))

        return [answer for batch in batches(ids) for answer in close(batch)]

    def purge(self, ids: Sequence[str], *, unreplayed: bool) -> list[Handled]:
        """Delete dead and resolved letters."""

        def delete(batch: list[str]) -> list[Handled]:
            return self._database.begin(lambda connection, again: letters.purge(connection, batch, unreplayed, again))

        return [answer for batch in batches(ids) for answer in delete(batch)]

    def would_replay(self, ids: Sequence[str]) -> list[Replayed]:
        """What a replay would answer now."""

        def ask(batch: list[str]) -> list[Replayed]:
            return self._database.each(lambda connection, again: letters.would_replay(connection, batch))

        return [answer for batch in batches(ids) for answer in ask(batch)]

    # -- replays --------------------------------------------------------------------------------------------------

    def replay_begin(self, new: NewReplay) -> None:
        """Write a replay without a job in it."""
        self._database.begin(lambda connection, again: replays.begin(connection, new))

    def replay_add(self, id: str, jobs: Sequence[str], first: int) -> int:
        """Add dead jobs to a replay that is building."""
        added = 0
        for batch in batches(jobs):
            added += self._add(id, batch, first + added)
        return added

    def _add(self, id: str, batch: list[str], first: int) -> int:
        return self._database.begin(lambda connection, again: replays.add(connection, id, batch, first, again))

    def replay_move(
        self, id: str, was: Sequence[ReplayState], to: ReplayState, why: str = "", wave: int | None = None
    ) -> bool:
        """Change the state of a replay."""
        move = replay_statements.move(id, was, to, why, wave)
        left = {"state": to.value, "why": why}
        return self._database.each(lambda connection, again: replays.moved(connection, move, id, again, left))

    def replay_wave(self, id: str, wave: int) -> bool:
        """Go on to the next wave."""
        step = replay_statements.next_wave(id, wave)
        left = {"state": ReplayState.RUNNING.value, "wave": wave + 1}
        return self._database.each(lambda connection, again: replays.moved(connection, step, id, again, left))

    def replay_observe(self, id: str, wave: int, run: int) -> Progress:
        """Note what became of jobs that were sent again, and count."""
        return self._database.each(lambda connection, again: replays.observe(connection, id, wave, run))

    def replay_release(self, id: str, wave: int, turn: int, count: int) -> int:
        """Send waiting jobs again, if it is time."""
        chosen = self._database.begin(lambda connection, again: replays.picked(connection, id, wave, turn, count))
        released = sum(self._replay_one(id, job, wave) for job in chosen)
        if released:
            self._ring()
        return released

    def _replay_one(self, id: str, job: str, wave: int) -> bool:
        lock_keys = self._traits.one_statement
        try:
            return self._database.begin(
                lambda connection, again: replays.release(connection, id, job, wave, lock_keys=lock_keys)
            )
        except IntegrityError:
            # its key was taken at this moment: it waits for the next turn, which will see who has it
            return False

    def replays(
        self, *, states: Sequence[ReplayState] = (), tenant: str | None = None, limit: int = 100
    ) -> list[Replay]:
        """Replays, newest first."""
        return self._replays(replay_statements.listed(states, tenant, limit))

    def replays_with(self, job: str) -> list[Replay]:
        """Replays that are not over and in which this job waits."""
        return self._replays(replay_statements.waiting_in(job))

    def _replays(self, found: Select[Any]) -> list[Replay]:
        return self._database.each(
            lambda connection, again: [replays.of(row) for row in connection.execute(found).mappings()]
        )

    def replay_of(self, id: str) -> Replay | None:
        """One replay with its counts."""
        return self._database.each(lambda connection, again: replays.one(connection, id))

    def replay_skipped(self, id: str, limit: int = 100) -> list[Handled]:
        """Jobs of a replay that were not sent again, and why."""
        return self._database.each(lambda connection, again: replays.skipped(connection, id, limit))

    def replay_failed(self, id: str, limit: int = 100) -> list[Handled]:
        """Jobs of a replay that have failed again."""
        return self._database.each(lambda connection, again: replays.failed(connection, id, limit))

    def retain_replays(self, keep: timedelta, limit: int) -> int:
        """Delete up to ``limit`` rows of a replay that is over for longer than ``keep``."""
        return self._database.each(lambda connection, again: replays.retain(connection, keep, min(limit, BATCH)))
