"""The part of the Store protocol that operators need; :class:`~celery_guard.store.protocol.Store` has all of it.

Its methods keep what is said there: each is one short transaction of the store's own, safe to repeat, and computes times by the store's clock.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Protocol

from celery_guard.job.audit import AuditEntry, NewAudit, Outcome

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
