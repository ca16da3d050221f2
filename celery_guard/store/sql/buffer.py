"""What a transaction is going to write: jobs that were given to it where nobody could wait for the database.

::

    .delay(1)    SAVEPOINT    .delay(2)    RELEASE               .delay(3)    COMMIT
       |             |           |            |                     |            |
    buffered      marked      buffered    1 and 2 are written    buffered     3 is written

Everything is written in the order in which it came, before a savepoint is released or the transaction commits; if it cannot be
written, that fails. Rolling back to a savepoint forgets what came after it, and what came before but was written after it is
to be written once more.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace

from celery_guard.errors import TransactionError
from celery_guard.job.refusal import explain_refusal
from celery_guard.job.row import NewJob
from celery_guard.job.verdict import Accepted, Buffered, Duplicate, Enqueued
from celery_guard.store.protocol import Door

__all__ = ["Buffer"]


@dataclass(slots=True)
class _Entry:
    job: NewJob
    answer: Buffered
    #: In which write it went; 0 while it is still to be written.
    written: int = 0


class Buffer:
    """The jobs of one transaction at a time. Knows no database: who owns the transaction tells it what happens."""

    def __init__(self) -> None:
        self._entries: list[_Entry] = []
        self._writes = 0
        #: For each savepoint: how many jobs, and how many writes, there were when it was set.
        self._marks: dict[Hashable, tuple[int, int]] = {}
        self._committing = False

    def add(self, jobs: Sequence[NewJob]) -> list[Enqueued]:
        """Keep jobs to be written. A duplicate among them is going to be a follower, since its id is given away here."""
        if self._committing:
            raise TransactionError(
                "The transaction is being committed, so nothing more can go with it. Somebody uses its session from two tasks "
                "at once: enqueue before the commit, or without using(...)."
            )
        added = [_Entry(replace(job, in_canvas=job.in_canvas or job.key is not None), Buffered(job.id)) for job in jobs]
        self._entries += added
        return [entry.answer for entry in added]

    def write(self, door: Door) -> None:
        """Write what is still to be written, right before a commit or a release.

        Raises:
            KeyConflict: a key was accepted before with another payload. The others are written.
            KeyBusy: another open transaction is taking a key. The others are written.
        """
        # from here on: a job that came during the write would not be in it
        self._committing = True
        try:
            self._write([entry for entry in self._entries if not entry.written], door)
        except BaseException:
            self._committing = False
            raise

    def _write(self, waiting: list[_Entry], door: Door) -> None:
        if not waiting:
            return
        self._writes += 1
        answers = door.enqueue([entry.job for entry in waiting])
        refused = [self._refused(entry, answer) for entry, answer in zip(waiting, answers, strict=True)]
        for error in refused:
            if error is not None:
                raise error

    def _refused(self, entry: _Entry, answer: Enqueued) -> Exception | None:
        error = explain_refusal(entry.job, answer)
        if error is None:
            entry.written = self._writes
            # a duplicate of itself: it was written before a commit that failed
            holder = answer.holder if isinstance(answer, (Accepted, Duplicate)) and answer.holder != answer.id else None
            entry.answer.written(Accepted(entry.job.id, holder))
        return error

    def mark(self, savepoint: Hashable) -> None:
        """A savepoint is set."""
        self._marks[savepoint] = len(self._entries), self._writes

    def released(self, savepoint: Hashable) -> None:
        """A savepoint was released; what was written in it is the transaction's."""
        self._marks.pop(savepoint, None)
        self._committing = False

    def rolled_back(self, savepoint: Hashable) -> None:
        """Back to a savepoint. All jobs came after one that was set before anybody looked."""
        count, writes = self._marks.pop(savepoint, (0, 0))
        del self._entries[count:]
        for entry in self._entries:
            if entry.written > writes:
                entry.written = 0
        self._committing = False

    def ended(self) -> None:
        """The transaction has ended, either way."""
        self._entries.clear()
        self._marks.clear()
        self._committing = False
