"""What the audit remembers of an operator's action. Who may act is decided in :mod:`celery_guard.flow.admin.actor`.

An action leaves at least two rows under one ``entry``: what was intended, written before anything is touched, and what came of it. A
process that is killed in between leaves the first alone, which is the truth: it was begun, and what it has done the jobs themselves say.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import Enum

__all__ = ["AuditEntry", "NewAudit", "Outcome"]


class Outcome(str, Enum):
    """What a row of the audit says about an action."""

    #: It is about to be done.
    INTENDED = "intended"
    DONE = "done"
    #: It was begun, and ended by an error.
    FAILED = "failed"
    #: It was not allowed; nothing was touched.
    REFUSED = "refused"

    __str__ = str.__str__


@dataclass(frozen=True, slots=True)
class NewAudit:
    """A row to be appended."""

    #: Names this row, so that one whose answer was lost can be written again.
    token: str
    #: Names the action; its rows share it.
    entry: str
    outcome: Outcome
    actor: str
    role: str
    origin: str
    action: str
    #: On what, in words: ids, or a filter and how many.
    target: str = ""
    #: The one job that the row is about.
    job: str | None = None
    #: Whose it is: the tenant of the actor, or else of the target.
    tenant: str | None = None
    reason: str = ""
    detail: str = ""


@dataclass(frozen=True, slots=True)
class AuditEntry:
    """A row of the audit, numbered by the store in the order of writing; ``at`` is an aware datetime in UTC, by the store's clock."""

    number: int
    at: datetime
    entry: str
    outcome: Outcome
    actor: str
    role: str
    origin: str
    action: str
    target: str = ""
    job: str | None = None
    tenant: str | None = None
    reason: str = ""
    detail: str = ""
