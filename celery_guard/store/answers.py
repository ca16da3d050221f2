"""What a store answers about itself and to people: values of no journey's own. The verdicts on jobs are in ``job.verdict``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from types import MappingProxyType

from celery_guard.job.state import State

__all__ = ["HANDLED", "NO_PROGRESS", "Backlog", "Cancelled", "Heartbeat", "Lease", "Quarantined", "Renewal", "Replayed"]


#: What a lease is known by: the job's id, the fence, the owner.
Lease = tuple[str, int, str]

#: No attempt has said how far it is.
NO_PROGRESS: Mapping[Lease, str] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Renewal:
    """A lease that was renewed. A lease that is missing from the answer is lost."""

    id: str
    fence: int
    cancel: bool


@dataclass(frozen=True, slots=True)
class Cancelled:
    """What a request to cancel did: ``cancelled`` at once, ``asked`` (it is running), or ``too late`` (it has ended)."""

    id: str
    answer: str
    state: State | None


@dataclass(frozen=True, slots=True)
class Replayed:
    """What a request to replay did: ``replayed``, or ``skipped`` with the reason in words."""

    id: str
    answer: str
    why: str = ""


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """A slot (``relay:0``) or a process that says it is alive."""

    name: str
    token: str
    beat: datetime
    until: datetime
    live: bool
    detail: str = ""

    @property
    def is_relay(self) -> bool:
        """Whether it is the slot of a relay."""
        return self.name.startswith("relay:")


@dataclass(frozen=True, slots=True)
class Quarantined:
    """A message that nobody could open, kept as the raw bytes it was."""

    id: int
    received: datetime
    queue: str
    content_type: str
    content_encoding: str
    reason: str
    size: int
    headers: str = ""
    body: bytes = b""
    #: How it is to be published again, as JSON; None where that is not known.
    delivery: str | None = None
    #: What a person has done about it: ``kept`` (nothing yet), ``releasing``, ``released`` or ``discarded``; when, and why.
    state: str = "kept"
    handled: datetime | None = None
    why: str = ""


#: States of a message in quarantine that nobody has to look at any more.
HANDLED = frozenset({"released", "discarded"})


@dataclass(frozen=True, slots=True)
class Backlog:
    """What waits and runs in one queue, of the jobs that were looked at. Instants are by the store's clock."""

    queue: str
    #: Due, and yet to be published.
    pending: int = 0
    #: Published, and yet to be claimed.
    sent: int = 0
    running: int = 0
    #: Among those that run: the lease is over.
    lapsed: int = 0
    oldest_due: datetime | None = None
    oldest_sent: datetime | None = None
    oldest_lapse: datetime | None = None
    #: When a job of this queue was last started; None where no started one is left.
    last_start: datetime | None = None
