"""Dead letters as people handle them: what failed alike, and what was done to single ones."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from .row import StoredPayload

__all__ = ["Edit", "Handled", "LetterGroup"]


@dataclass(frozen=True, slots=True)
class LetterGroup:
    """Dead letters of one task with one cause: the same exception type at the same place. Times are aware, in UTC, by the store's clock."""

    task: str
    #: None: they died of no exception: nobody claimed them, say.
    cause: str | None
    count: int
    first: datetime
    last: datetime
    #: How many tenants are touched; jobs without one count for none.
    tenants: int
    #: One of them.
    sample: str
    #: The exception type of the sample's last failure.
    type_name: str = ""
    #: When one of this cause was last replayed.
    replayed: datetime | None = None
    note: str = ""
    noted_by: str = ""


@dataclass(frozen=True, slots=True)
class Handled:
    """What came of one letter: ``done``, or ``skipped`` with the reason in words."""

    id: str
    answer: str
    why: str = ""


@dataclass(frozen=True, slots=True)
class Edit:
    """Another message for a dead letter to be sent again with. The one that was edited stays."""

    id: str
    #: The message that was edited: whoever edits that one first wins.
    generation: int
    payload: StoredPayload
    #: Of the call as it is now; None where it has none.
    fingerprint: str | None

    def overtaken_by(self, generation: int) -> str:
        """Why it is not written, where the message is another one by now."""
        return f"its message is generation {generation} by now, and generation {self.generation} was edited"
