"""What the store is given for a job, and what it gives back.

``NewJob`` goes in, ``Job`` comes out. The payload is the message as Celery built it: it is stored whole, never
updated, and never interpreted on the way.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime, timedelta

from .instant import Instant
from .progress import Progress
from .state import Kind, Reason, State

__all__ = ["LONGEST_NAME", "Attempt", "Job", "NewJob", "Outgoing", "StoredFailure", "StoredPayload", "StoredResult"]

#: As much as every store keeps of a name, in characters.
LONGEST_NAME = 255


@dataclass(frozen=True, slots=True)
class StoredPayload:
    """A message, ready for a broker: the encoded body, and headers and delivery options as JSON text."""

    body: bytes
    headers: str
    delivery: str


@dataclass(frozen=True, slots=True)
class NewJob:
    """A job to be accepted."""

    id: str
    task: str
    queue: str
    payload: StoredPayload
    kind: Kind = Kind.RUN
    priority: int | None = None
    tenant: str | None = None
    #: SHA-256 in hex of (task, tenant, key values). None: the job has no key of its own, only its id.
    key: str | None = None
    #: SHA-256 in hex of what a duplicate must repeat.
    fingerprint: str | None = None
    #: How long after acceptance the job becomes due.
    delay: timedelta = timedelta(0)
    #: The deadline, as an instant that a parent handed down or ...
    deadline: Instant | None = None
    #: ... as a duration from acceptance; the earlier of the two counts.
    deadline_in: timedelta | None = None
    #: The job belongs to a canvas: a duplicate has to be given an outcome under its own id, as a follower.
    in_canvas: bool = False
    parent_id: str | None = None
    root_id: str | None = None
    group_id: str | None = None
    correlation_id: str | None = None
    #: The name of the schedule that sent it.
    schedule: str | None = None
    #: Its message is in the broker already: it is not published, and only looked for when nobody has claimed it for so long.
    in_broker: timedelta | None = None


@dataclass(frozen=True, slots=True)
class StoredResult:
    """A result, encoded as it will be handed back, byte for byte."""

    body: bytes
    content_type: str
    content_encoding: str


@dataclass(frozen=True, slots=True)
class StoredFailure:
    """One failed attempt, as text that is safe on every database and bounded in size."""

    #: transient, throttled, permanent, unknown, control or superseded.
    failure_class: str
    type_name: str
    message: str
    traceback: str
    #: Short hash of (task, exception type, place): what failed alike.
    cause: str
    worker: str
    truncated: bool = False
    fence: int = 0
    attempt: int = 0
    at: datetime | None = None


@dataclass(frozen=True, slots=True)
class Outgoing:
    """A due row that a relay has taken, with all it needs to publish it."""

    id: str
    task: str
    queue: str
    kind: Kind
    state: State
    reason: Reason | None
    generation: int
    retries: int
    publications: int
    refusals: int
    #: None: it is gone from the store (deleted by hand, evicted), and the row can only be ended.
    payload: StoredPayload | None
    tenant: str | None
    #: The deadline is over: end the job instead of publishing it.
    expired: bool = False
    #: The job that holds this one's key, whose outcome it will be given.
    holder: str | None = None
    fence: int = 0


@dataclass(frozen=True, slots=True)
class Attempt:
    """A running or waiting row that the sweep has to decide about."""

    id: str
    task: str
    queue: str
    state: State
    reason: Reason | None
    fence: int
    owner: str
    attempts: int
    crashes: int
    retries: int
    publications: int
    cancel: bool
    #: How long ago this attempt started (running) or was published (sent).
    age: timedelta
    #: Since the job was accepted.
    total: timedelta
    #: From the start of the attempt to the end of its lease (running).
    leased: timedelta = timedelta(0)
    #: How long until the deadline; negative when it is over; None without one.
    remaining: timedelta | None = None
    #: For sent rows: a job that was published later to the same queue is running.
    overtaken: bool = False


@dataclass(frozen=True, slots=True)
class Job:
    """A job as people and programs read it. Times are aware datetimes in UTC, by the store's clock."""

    id: str
    task: str
    queue: str
    kind: Kind
    state: State
    reason: Reason | None
    created: datetime
    priority: int | None = None
    tenant: str | None = None
    key: str | None = None
    holder: str | None = None
    fence: int = 0
    owner: str | None = None
    generation: int = 0
    attempts: int = 0
    crashes: int = 0
    retries: int = 0
    publications: int = 0
    refusals: int = 0
    replays: int = 0
    interruptions: int = 0
    cancel: bool = False
    told: bool = False
    due: datetime | None = None
    deadline: datetime | None = None
    sent: datetime | None = None
    started: datetime | None = None
    finished: datetime | None = None
    keep_until: datetime | None = None
    parent_id: str | None = None
    root_id: str | None = None
    group_id: str | None = None
    correlation_id: str | None = None
    #: The name of the schedule that sent it.
    schedule: str | None = None
    #: What the attempt that runs has said of how far it is, or the last one that ran.
    progress: Progress | None = None
    failure_class: str | None = None
    cause: str | None = None
    #: Oldest first; only filled where one job is asked for by id.
    failures: tuple[StoredFailure, ...] = field(default=())

    @property
    def shown_state(self) -> str:
        """The state as people see it.

        A running job that was asked to stop is ``cancelling``. A message of a task without a guard is ``published``, and no more is known of it.
        """
        if self.kind is Kind.CARRIED and self.state is State.SUCCEEDED:
            return "published"
        return "cancelling" if self.cancel and self.state is State.RUNNING else self.state.value
