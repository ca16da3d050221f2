"""What operators ask of an SQL store: :class:`~celery_guard.store.operators.Operators` on SQLite, PostgreSQL, MySQL and MariaDB."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

from celery_guard.job.audit import AuditEntry, NewAudit, Outcome
from celery_guard.store.calls import BATCH, batches

from . import audit
from .opened import OpenStore

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
