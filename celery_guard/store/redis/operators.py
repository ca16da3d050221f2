"""What operators ask of a Redis store: :class:`~celery_guard.store.operators.Operators` by scripts.

======================  ======  ===================================================================================
``audit``               zset    by number: what operators did; each has a hash ``audit:NUMBER``
``audit_job:ID``        zset    by number: what they did to one job
``audit_tokens``        hash    which call has written which row, and the last number
======================  ======  ===================================================================================
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from celery_guard.job.audit import AuditEntry, NewAudit, Outcome
from celery_guard.job.instant import Instant, instant_to_datetime, microseconds
from celery_guard.job.text import clean
from celery_guard.store.calls import BATCH, batches

from .opened import OpenStore

__all__ = ["RedisOperators"]

#: How many rows one script looks at for a list that people asked for.
_BUDGET = 1000

_TEXTS = ("entry", "actor", "role", "origin", "action", "target", "reason", "detail")


class RedisOperators(OpenStore):
    """The part of a store that people work with."""

    # -- audit ----------------------------------------------------------------------------------------------------

    def audit(self, rows: Sequence[NewAudit]) -> None:
        """Append rows to the audit, in their order."""
        for batch in batches(rows):
            self._server.run("audit", {"rows": [_given(row) for row in batch]})

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
        """Rows of the audit, newest first. Filters other than the job are compared row by row, a thousand rows a round trip."""
        word = None if outcome is None else outcome.value
        wanted = {"actor": actor, "action": action, "outcome": word, "tenant": tenant, "entry": entry}
        words: dict[str, Any] = {
            "wanted": {name: value for name, value in wanted.items() if value is not None},
            "budget": _BUDGET,
        }
        if job is not None:
            words["job"] = job
        if since is not None:
            words["since"] = microseconds(since)
        found: list[AuditEntry] = []
        while len(found) < limit:
            place = {} if after is None else {"after": after}
            reached, *page = self._server.run("audited", {**words, **place, "limit": min(limit - len(found), _BUDGET)})
            found += [_entry(number, row) for number, row in page]
            after = int(reached)
            if not after:
                break
        return found

    def retain_audit(self, keep: timedelta, limit: int) -> int:
        """Forget up to ``limit`` rows that are older than ``keep``."""
        gone: int = self._server.run("retain_audit", {"keep": microseconds(keep), "limit": min(limit, BATCH)})
        return gone


def _given(row: NewAudit) -> dict[str, Any]:
    said = {name: clean(getattr(row, name)) for name in _TEXTS}
    said |= {"token": row.token, "outcome": row.outcome.value}
    return said | {name: value for name in ("job", "tenant") if (value := getattr(row, name)) is not None}


def _entry(number: Any, row: bytes) -> AuditEntry:
    said = json.loads(row)
    return AuditEntry(
        int(number),
        instant_to_datetime(Instant(int(said["at"]))),
        outcome=Outcome(said["outcome"]),
        job=said.get("job"),
        tenant=said.get("tenant"),
        **{name: said[name] for name in _TEXTS},
    )
