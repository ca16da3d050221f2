"""Tracing: what the rest of the guard asks of it, and the one that does nothing where OpenTelemetry is not installed.

::

    the caller's span
    └── enqueue shop.charge         PRODUCER   the message is built; its context goes into the message's headers
        ├── publish shop.charge     PRODUCER   each publication by a relay, from the first try to the broker's word
        ├── run shop.charge         CONSUMER   the first attempt: the body and its settle; it also links to the enqueue span
        │   └── enqueue shop.ship   PRODUCER   what the body sends, and what hangs on its success
        └── run shop.charge         CONSUMER   the second attempt

The rule: every publication and every attempt is a *child* of the enqueue span, whenever it happens, so that a job is one trace; an
attempt has a link to it too, which is where the semantic conventions look. Where the message brings no context, an attempt starts a
trace of its own. An attempt whose process died has a span too, from its start to the end of its lease: the sweep that brings the job back writes it, as
far as the row tells. A delivery that runs no body is an event of the trace (``celery_guard.duplicate``) and no span.

The context lies in the message's headers, as the user's propagator writes it, and the message lies in the store: so it survives the relay,
retries, replay and adoption. No argument, no key and no failure's message is ever an attribute.

What OpenTelemetry does wrong changes nothing for a job: it is logged here, and the job goes on.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, MutableMapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from celery_guard.job.delivery import Ending
    from celery_guard.job.verdict import Enqueued

__all__ = ["NO_ENQUEUE", "NO_RUN", "EnqueueSpan", "Lost", "RunFacts", "RunSpan", "Sent", "Tracing", "open_tracing"]


@dataclass(frozen=True, slots=True)
class RunFacts:
    """What is known of an attempt, or of a delivery, when it begins."""

    id: str
    task: str
    queue: str | None
    attempt: int | None = None
    retries: int | None = None
    fence: int | None = None
    tenant: str | None = None
    correlation_id: str | None = None


@dataclass(frozen=True, slots=True)
class Sent:
    """One message that a relay has published, or could not."""

    id: str
    task: str
    queue: str
    headers: Mapping[str, Any]
    #: Why the broker refused it.
    error: BaseException | None = None


@dataclass(frozen=True, slots=True)
class Lost:
    """An attempt whose process died, as its row tells it: nobody has ended its span."""

    facts: RunFacts
    #: Nanoseconds since the epoch: its start, and the end of its lease.
    began: int
    ended: int
    #: What became of the job.
    outcome: str
    failure_class: str | None = None
    error: str | None = None


class EnqueueSpan:
    """One send, while its message is built and its row written. This one does nothing."""

    def built(self, id: str, queue: str, headers: MutableMapping[str, Any]) -> None:
        """The message is there: put the context into its headers."""

    def answered(self, answer: Enqueued) -> None:
        """What the store made of it."""


class RunSpan:
    """One attempt, from its claim to its settled row. This one does nothing."""

    #: (trace id, span id) in hex, for log records; None where nothing is traced.
    ids: tuple[str, str] | None = None

    def end(self, ending: Ending | None) -> None:
        """It is over; None: the store could not be told."""


class Tracing(Protocol):
    """What the guard asks of tracing. Nothing here raises."""

    def enqueuing(self, task: str) -> AbstractContextManager[EnqueueSpan]:
        """Around one send."""
        ...

    def sent(self, messages: Iterable[Sent], since: int) -> None:
        """A relay has published a batch; ``since`` is when it began (ns since the epoch)."""
        ...

    def run(self, facts: RunFacts, headers: Mapping[str, Any]) -> RunSpan:
        """An attempt begins here: what the body does is inside its span, until :meth:`RunSpan.end`."""
        ...

    def not_run(self, facts: RunFacts, headers: Mapping[str, Any], why: str) -> RunSpan:
        """A delivery runs no body: an event of the job's trace. What is sent until the end of what is returned belongs to that trace."""
        ...

    @property
    def on(self) -> bool:
        """Whether anybody takes spans here."""
        ...

    def lost(self, attempt: Lost, headers: Mapping[str, Any]) -> None:
        """The sweep has found an attempt whose process died: a span of what is known of it."""
        ...

    def flush(self, within: float) -> None:
        """Have what is ended exported before this process ends, for at most ``within`` seconds."""
        ...


class NoTracing:
    """OpenTelemetry is not installed."""

    def enqueuing(self, task: str) -> AbstractContextManager[EnqueueSpan]:
        """Nothing."""
        return nullcontext(NO_ENQUEUE)

    def sent(self, messages: Iterable[Sent], since: int) -> None:
        """Nothing."""

    def run(self, facts: RunFacts, headers: Mapping[str, Any]) -> RunSpan:
        """Nothing."""
        return NO_RUN

    def not_run(self, facts: RunFacts, headers: Mapping[str, Any], why: str) -> RunSpan:
        """Nothing."""
        return NO_RUN

    @property
    def on(self) -> bool:
        """Nobody does."""
        return False

    def lost(self, attempt: Lost, headers: Mapping[str, Any]) -> None:
        """Nothing."""

    def flush(self, within: float) -> None:
        """Nothing."""


NO_ENQUEUE, NO_RUN = EnqueueSpan(), RunSpan()


def open_tracing() -> Tracing:
    """With OpenTelemetry where it is installed."""
    if find_spec("opentelemetry") is None or find_spec("opentelemetry.trace") is None:
        return NoTracing()
    from .spans import Spans

    return Spans()
