"""The part of the Store protocol that operators need; :class:`~celery_guard.store.protocol.Store` has all of it.

Its methods keep what is said there: each is one short transaction of the store's own, safe to repeat, and computes times by the store's clock.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Protocol

from celery_guard.job.audit import AuditEntry, NewAudit, Outcome
from celery_guard.job.ciphertext import Ciphertext
from celery_guard.job.letter import Edit, Handled, LetterGroup
from celery_guard.job.replay import NewReplay, Progress, Replay, ReplayState

from .answers import Replayed

__all__ = ["Operators"]


class Operators(Protocol):
    """What people do to jobs that have failed, and the record of who did it."""

    # -- audit ----------------------------------------------------------------------------------------------------

    def audit(self, rows: Sequence[NewAudit]) -> None:
        """Append rows to the audit, in their order. A row whose token is there already is left as it is."""
        ...

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
        """Rows of the audit, newest first; ``since`` is an age, ``after`` the number of the last one of the page before."""
        ...

    def retain_audit(self, keep: timedelta, limit: int) -> int:
        """Delete up to ``limit`` rows that are older than ``keep``, the oldest first; how many went."""
        ...

    # -- keys: see :mod:`celery_guard.job.encryption` ---------------------------------------------------------------

    def ciphertexts(
        self, limit: int, after: str | None = None, *, but: str | None = None, brief: bool = False
    ) -> tuple[list[Ciphertext], str | None]:
        """What is encrypted with another key than ``but`` among the next ``limit`` rows, and where to go on; None at the end.

        ``after`` is where the page before ended. What is written meanwhile may be left out. ``brief``: no more of each than its key's id.
        """
        ...

    def reencrypt(self, was: Ciphertext, text: str) -> bool:
        """Put a ciphertext in the place of ``was``; False where that is not there any more, and nothing was written."""
        ...

    # -- dead letters ---------------------------------------------------------------------------------------------

    def groups(self, *, task: str | None = None, tenant: str | None = None, limit: int = 100) -> list[LetterGroup]:
        """Dead letters by task and cause, the largest group first."""
        ...

    def annotate(self, cause: str, note: str, by: str) -> None:
        """Put a note to a cause, in place of the one that was there; an empty one takes it away."""
        ...

    def resolve(self, ids: Sequence[str], keep: timedelta) -> list[Handled]:
        """Close dead letters, in the order of ``ids``; they are kept for ``keep`` from now. Only dead ones are."""
        ...

    def purge(self, ids: Sequence[str], *, unreplayed: bool) -> list[Handled]:
        """Delete dead and resolved letters with all that belongs to them.

        Not deleted is one that was neither replayed nor resolved, without ``unreplayed``, and one of whose end Celery was not told yet.
        """
        ...

    def would_replay(self, ids: Sequence[str]) -> list[Replayed]:
        """What :meth:`~celery_guard.store.protocol.Store.replay` would answer now; nothing is changed."""
        ...

    def replay_edited(self, edit: Edit) -> Replayed:
        """Send a dead job again with another message, in one transaction: the message is its next generation, and the one before it stays.

        Skipped, and nothing is written, unless the job is dead, its message is still the one that was edited, and nobody else holds its key:
        also not the job whose outcome it was to be given, for that is of another call.
        """
        ...

    # -- replays: see :mod:`celery_guard.job.replay` ----------------------------------------------------------------

    def replay_begin(self, new: NewReplay) -> None:
        """Write a replay without a job in it, ``building``; one that is there already is left as it is."""
        ...

    def replay_add(self, id: str, jobs: Sequence[str], first: int) -> int:
        """Add jobs to a replay that is building, at positions from ``first`` on; how many were added: dead ones, each once."""
        ...

    def replay_move(
        self, id: str, was: Sequence[ReplayState], to: ReplayState, why: str = "", wave: int | None = None
    ) -> bool:
        """Change the state of a replay, if it is one of ``was`` and, where given, this is its wave.

        To ``running`` the ramp begins anew, in a wave of its own, unless it was building.
        """
        ...

    def replay_wave(self, id: str, wave: int) -> bool:
        """Go on to the next wave, if the replay is running and this is its wave."""
        ...

    def replay_observe(self, id: str, wave: int, run: int) -> Progress:
        """Note what became of jobs that were sent again, and count; as cheap for a large set as for a small one.

        ``run``: the first wave that same causes are counted from.
        """
        ...

    def replay_release(self, id: str, wave: int, turn: int, count: int) -> int:
        """Send up to ``count`` waiting jobs again, if the replay is running, this is its wave and its turn, and it is time; how many went.

        The turn is taken first: the next one is later, by ``every`` for each job. So of two callers one releases. Each job then moves in a
        transaction of its own together with its place in the replay; one that cannot be sent again is skipped, with the reason.
        A tenant that has ``cap`` jobs on their way is passed over.
        """
        ...

    def replays(
        self, *, states: Sequence[ReplayState] = (), tenant: str | None = None, limit: int = 100
    ) -> list[Replay]:
        """Replays, newest first, without counts."""
        ...

    def replay_of(self, id: str) -> Replay | None:
        """One replay with its counts."""
        ...

    def replays_with(self, job: str) -> list[Replay]:
        """Replays that are not over and in which this job waits to be sent again; newest first, without counts."""
        ...

    def replay_skipped(self, id: str, limit: int = 100) -> list[Handled]:
        """Jobs of a replay that were not sent again, and why."""
        ...

    def replay_failed(self, id: str, limit: int = 100) -> list[Handled]:
        """Jobs of a replay that are dead letters again (``failed``) or wait for a retry of their own (``failing``); those sent last first."""
        ...

    def retain_replays(self, keep: timedelta, limit: int) -> int:
        """Delete up to ``limit`` rows of a replay that is over, or was left unfinished, for longer than ``keep``; how many went.

        One that was paused or has stopped itself, and stands still for longer than that, is aborted first: from then on it is over.
        """
        ...
