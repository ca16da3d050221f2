"""How an attempt ends: the one value that settle writes.

``Settlement`` is decided by pure rules (:mod:`celery_guard.job.decide`) and written by the store in one
transaction: the row's move, the result or the failure, and the rows of what follows.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta

from .row import NewJob, StoredFailure, StoredPayload, StoredResult
from .state import Kind, Reason, State

__all__ = ["Settlement"]


@dataclass(frozen=True, slots=True)
class Settlement:
    """The end of one attempt, or of a job that will not be attempted.

    Written only if the row still carries ``fence`` and ``owner``.
    """

    id: str
    fence: int
    owner: str
    state: State
    reason: Reason | None = None
    #: For ``pending``: how long until the job is due again.
    delay: timedelta = timedelta(0)
    #: Nothing hangs on this outcome at Celery's side, so nobody has to be told.
    told: bool = False
    #: For ended and untold rows: how long the settler has to tell Celery before the sweep has it told again.
    tell_within: timedelta = timedelta(seconds=60)
    #: For ended rows: how long the row is kept.
    keep: timedelta = timedelta(days=7)
    result: StoredResult | None = None
    failure: StoredFailure | None = None
    #: For ``pending``: the message of the next generation, where it differs from this one.
    payload: StoredPayload | None = None
    #: With ``payload``: what it makes of the row, where that differs. A replacement may be another task, on another queue, and may
    #: have no guard.
    task: str | None = None
    queue: str | None = None
    kind: Kind | None = None
    #: Chain's next, links: accepted in the same transaction.
    follow: tuple[NewJob, ...] = ()
    #: False: the attempt was interrupted or held, and is not counted.
    charged: bool = True
    #: The attempt died rather than failed.
    crashed: bool = False
    #: The next run is one retry further, as Celery's ``request.retries`` counts.
    retried: bool = False
    #: True: one interruption more in a row. False: the attempt came to an end of its own, and the count starts anew. None: it stays.
    interrupted: bool | None = None
    #: What the attempt said last of how far it is, as the row keeps it. None: what the row has stays.
    progress: str | None = None
