"""What stands between a job and its end, and the facts that this is decided from. Values; the decision is in :mod:`.explain`.

A code never changes its meaning, and is a page of the runbook::

    =====  =================================================  =====  =================================================
    100    the store does not answer, or its tables are old   140    waits for the job that holds its key
    101    no relay is alive                                  141    held by a limit
    102    no worker answers                                  142    held by a brake
    103    the broker cannot be reached                       143    held for a newer version of the code
    110    due later                                          144    has handed itself over to other jobs
    111    due, and not published                             170    is running
    112    refused by the broker                              171    the lease has ended, and nobody took the job back
    113    the deadline is over                               172    asked to stop
    150    a replay does not go on                            151    waits for its turn in a replay
    120    no worker consumes the queue                       180    the outcome is unknown
    121    the queue stalls                                   190    has ended
    122    waits for its turn                                 191    has ended, and Celery is yet to be told
    123    published again and again                          192    is a dead letter
    130    no task of that name                               145    held for a key to decrypt it with
    =====  =================================================  =====  =================================================
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime

from celery_guard.job.replay import Replay
from celery_guard.job.row import Job
from celery_guard.job.state import State
from celery_guard.store.protocol import Backlog, Heartbeat

__all__ = ["CODES", "Blocker", "Facts", "Live", "Subject"]

#: Every code, and what it is called.
CODES = {
    "EXPLAIN-100": "the store does not answer, or its tables are old",
    "EXPLAIN-101": "no relay is alive",
    "EXPLAIN-102": "no worker answers",
    "EXPLAIN-103": "the broker cannot be reached",
    "EXPLAIN-110": "due later",
    "EXPLAIN-111": "due, and not published",
    "EXPLAIN-112": "refused by the broker",
    "EXPLAIN-113": "the deadline is over",
    "EXPLAIN-120": "no worker consumes the queue",
    "EXPLAIN-121": "the queue stalls",
    "EXPLAIN-122": "waits for its turn",
    "EXPLAIN-123": "published again and again",
    "EXPLAIN-130": "no task of that name",
    "EXPLAIN-140": "waits for the job that holds its key",
    "EXPLAIN-141": "held by a limit",
    "EXPLAIN-142": "held by a brake",
    "EXPLAIN-143": "held for a newer version of the code",
    "EXPLAIN-144": "has handed itself over to other jobs",
    "EXPLAIN-145": "held for a key to decrypt it with",
    "EXPLAIN-150": "a replay does not go on",
    "EXPLAIN-151": "waits for its turn in a replay",
    "EXPLAIN-170": "is running",
    "EXPLAIN-171": "the lease has ended, and nobody took the job back",
    "EXPLAIN-172": "asked to stop",
    "EXPLAIN-180": "the outcome is unknown",
    "EXPLAIN-190": "has ended",
    "EXPLAIN-191": "has ended, and Celery is yet to be told",
    "EXPLAIN-192": "is a dead letter",
}


@dataclass(frozen=True, slots=True)
class Blocker:
    """One thing that stands between a job and its end."""

    code: str
    #: A sentence with what was found.
    what: str
    since: datetime | None = None
    #: When it ends by itself, where that is known.
    until: datetime | None = None
    #: Somebody has to do something.
    wrong: bool = False
    #: What to type: words of ``guard``, or of ``worker``; empty where waiting is all.
    next: tuple[str, ...] = ()

    @property
    def title(self) -> str:
        """What the code is called."""
        return CODES[self.code]


@dataclass(frozen=True, slots=True, kw_only=True)
class Live:
    """What workers and the broker answered just now, within a bounded time."""

    #: Why the broker could not be asked; empty if it could.
    broker_out: str = ""
    #: Queue by queue the workers that consume it; None: nobody can be asked over such a broker.
    consumers: Mapping[str, tuple[str, ...]] | None = None
    #: How many messages are in a queue, as far as the broker says.
    depths: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """What is known about the whole system. Instants are by the store's clock."""

    now: datetime
    #: Slots of relays, those that are not alive any more included.
    relays: tuple[Heartbeat, ...] = ()
    backlog: Mapping[str, Backlog] = field(default_factory=dict)
    #: How many jobs of the one tenant that asks are in each state; None where all is asked for. What others have is then not told.
    own: Mapping[State, int] | None = None
    #: Jobs whose outcome nobody knows; a sample.
    unknown: tuple[Job, ...] = ()
    #: Replays that are not over.
    replays: tuple[Replay, ...] = ()
    live: Live = field(default_factory=Live)
    max_publications: int = 0
    #: Why the store could not be asked; everything else is then unknown.
    store_out: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """What is known about one job."""

    job: Job
    #: The job that holds its key, where it follows one.
    holder: Job | None = None
    #: Whether this process knows a task of its name.
    known: bool = True
    #: Replays that are not over, in which it waits to be sent again.
    replays: tuple[Replay, ...] = ()
