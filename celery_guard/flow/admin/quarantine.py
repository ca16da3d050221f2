"""``guard.quarantine``: messages that nobody could open, put back on their queue after the cause is mended, or given up; and a broker's own
dead-letter queue, drained into the same place.

    release:  kept -> releasing -> (published) -> released        drain:  taken from the broker -> kept in the store -> acknowledged

A process that is killed in between, or whose broker is lost before it has answered, leaves a message ``releasing``, which may have gone out; it is
released again only where that is said. One that is killed while it drains leaves the message with the broker; the next drain knows it by its content and its delivery, and keeps it once.

Messages here belong to no tenant that anybody has read off them, so an actor with a tenant sees none.
"""

from __future__ import annotations

import builtins
import hashlib
import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from typing import Literal, Protocol

from celery_guard.errors import MoveRefused
from celery_guard.store.protocol import HANDLED, Quarantined, Store

from .actor import Action, Actor, Target
from .audit import Authority

__all__ = ["Fetched", "HandledMessage", "Mailing", "Posted", "Quarantine"]


@dataclass(frozen=True, slots=True)
class Fetched:
    """A message that was taken from a queue of the broker's, and is its until it is acknowledged."""

    #: The queue that it was meant for, before the broker set it aside.
    queue: str
    body: bytes
    headers: str
    content_type: str
    content_encoding: str
    #: How it is published again, as JSON.
    delivery: str
    #: Why the broker set it aside, in its words.
    reason: str
    acknowledge: Callable[[], object]

    @property
    def token(self) -> str:
        """The same for the same message, however often it is taken: content, headers and delivery, with all that the broker has noted there."""
        words = [self.queue, self.headers, self.content_type, self.content_encoding, self.delivery]
        return hashlib.sha256(json.dumps(words).encode() + b"\0" + self.body).hexdigest()


@dataclass(frozen=True, slots=True)
class HandledMessage:
    """What was done about a message: ``released``, ``discarded``, or ``skipped`` with the reason in words.

    Also ``unknown``, with what happened: it may have gone out, and is still ``releasing``.
    """

    number: int
    answer: str
    why: str = ""


@dataclass(frozen=True, slots=True)
class Posted:
    """What a broker made of a message: it has it, it has said that it will not have it, or it was lost before it said either."""

    answer: Literal["taken", "refused", "unknown"]
    why: str = ""


class Mailing(Protocol):
    """Puts messages on queues of the broker's, and takes them off."""

    def publish(self, message: Quarantined, queue: str) -> Posted:
        """Put it on the queue as it was. Raises ``ConnectionError`` where the broker is out: nothing was sent."""
        ...

    def fetch(self, queue: str, limit: int) -> AbstractContextManager[Iterator[Fetched]]:
        """Take up to ``limit`` messages off a queue, one at a time. What is not acknowledged inside the block goes back."""
        ...

    def works_on(self, queue: str) -> bool:
        """Whether the app's own tasks travel over this queue."""
        ...


class Quarantine:
    """The quarantine of one app's store."""

    def __init__(self, store: Store, authority: Authority, mailing: Mailing) -> None:
        self._store = store
        self._authority = authority
        self._mailing = mailing

    def list(
        self, *, by: Actor, limit: int = 100, handled: bool = False, before: int | None = None
    ) -> builtins.list[Quarantined]:
        """Messages, newest first, without bodies; ``handled``: also those that were released or discarded. Raises ``NotAllowed``."""
        self._authority.look(by, Action.QUARANTINE_LOOK, _target(by))
        return self._store.quarantined(limit, handled=handled, before=before)

    def get(self, number: int, *, by: Actor) -> Quarantined:
        """One message, without what is in it: headers and body are empty. Raises ``NotFound``, ``NotAllowed``."""
        self._authority.look(by, Action.QUARANTINE_LOOK, _target(by, number))
        return replace(self._message(number, by, Action.QUARANTINE_LOOK), headers="", body=b"")

    def reveal(self, number: int, *, by: Actor, reason: str) -> Quarantined:
        """One message with all that is in it, which may be arguments; audited. Raises ``NotFound``, ``NotAllowed``, ``ReasonMissing``."""
        with self._authority.act(by, Action.QUARANTINE_REVEAL, _target(by, number), reason):
            return self._message(number, by, Action.QUARANTINE_REVEAL)

    def release(
        self, numbers: Sequence[int], *, by: Actor, reason: str, queue: str | None = None, again: bool = False
    ) -> builtins.list[HandledMessage]:
        """Put messages back on the queue they came from, or on ``queue``, as they were.

        ``again``: also those that somebody began to release, and which may have gone out.

        Raises:
            NotAllowed, ReasonMissing, ConfirmationNeeded: nothing was done.
            ConnectionError: the broker is out; what it has not taken is kept.
        """
        numbers = [*dict.fromkeys(numbers)]
        answers: builtins.list[HandledMessage] = []
        with self._authority.act(by, Action.QUARANTINE_RELEASE, _target(by, *numbers), reason, len(numbers)) as acting:
            for number in numbers:
                answers.append(self._release(number, f"by {by.name}: {reason}", queue, again))
                acting.result = _tally(answers)
        return answers

    def discard(self, numbers: Sequence[int], *, by: Actor, reason: str) -> builtins.list[HandledMessage]:
        """Give messages up; they are kept for a while for people who look. Raises ``NotAllowed``, ``ReasonMissing``."""
        numbers = [*dict.fromkeys(numbers)]
        why = f"by {by.name}: {reason}"
        with self._authority.act(by, Action.QUARANTINE_DISCARD, _target(by, *numbers), reason, len(numbers)) as acting:
            answers = [self._discard(number, why) for number in numbers]
            acting.result = _tally(answers)
        return answers

    def drain(
        self,
        queue: str,
        *,
        by: Actor,
        reason: str,
        limit: int = 10_000,
        progress: Callable[[int], object] = lambda done: None,
    ) -> int:
        """Take what a broker has set aside in ``queue`` into quarantine; how many messages.

        Raises:
            NotAllowed, ReasonMissing: nothing was done.
            MoveRefused: the app's own tasks travel over this queue; it is no dead-letter queue.
            ConnectionError: the broker is out; what was not kept is still there.
        """
        if self._mailing.works_on(queue):
            raise MoveRefused(
                f"The app's own tasks travel over the queue {queue!r}: to drain it would take jobs from the workers. Name the dead-letter queue."
            )
        done = 0
        target = replace(_target(by), name=f"queue {queue}")
        acts = self._authority.act(by, Action.QUARANTINE_DRAIN, target, reason)
        with acts as acting, self._mailing.fetch(queue, limit) as fetched:
            for message in fetched:
                self._keep(message)
                message.acknowledge()
                done += 1
                acting.result = f"{done} drained"
                progress(done)
        return done

    # -- within -------------------------------------------------------------------------------------------------------

    def _keep(self, message: Fetched) -> None:
        """Keep it, once. One that somebody has handled since, and that is here again, waits for a person again."""
        number = self._store.quarantine(
            queue=message.queue, body=message.body, headers=message.headers, content_type=message.content_type,
            content_encoding=message.content_encoding, reason=message.reason, delivery=message.delivery, token=message.token,
        )  # fmt: skip
        known = self._store.message(number)
        if known is not None and known.state in HANDLED:
            self._store.move_message(
                number, known.state, "kept", f"it came back after it was {known.state} ({known.why})"
            )

    def _message(self, number: int, by: Actor, action: Action) -> Quarantined:
        found = self._store.message(number)
        if found is None:
            raise self._authority.missing(by, action, f"message {number} in quarantine", hidden=False)
        return found

    def _release(self, number: int, why: str, queue: str | None, again: bool) -> HandledMessage:
        message = self._store.message(number)
        if message is None or message.state in HANDLED:
            return _skipped(number, message)
        if message.state == "releasing" and not again:
            return HandledMessage(
                number, "skipped", f"somebody began to release it ({message.why}), and it may have gone out"
            )
        if not self._store.move_message(number, message.state, "releasing", why):
            return HandledMessage(number, "skipped", "somebody else has it under their hands")
        try:
            posted = self._mailing.publish(message, queue or message.queue)
        except ConnectionError:
            self._not_sent(message, "the broker was out")
            raise
        if posted.answer == "refused":
            self._not_sent(message, posted.why)
            return HandledMessage(number, "skipped", posted.why)
        if posted.answer == "unknown":
            self._store.move_message(number, "releasing", "releasing", f"{why}; {posted.why}")
            return HandledMessage(
                number, "unknown", f"{posted.why}. It may have gone out: look, and release it again, or discard it"
            )
        self._store.move_message(number, "releasing", "released", why)
        return HandledMessage(number, "released")

    def _not_sent(self, message: Quarantined, why: str) -> None:
        """This time it has not gone out. One that may have gone out before is still one."""
        before = f"{message.why}; then: " if message.state == "releasing" else ""
        self._store.move_message(message.id, "releasing", message.state, f"{before}{why}")

    def _discard(self, number: int, why: str) -> HandledMessage:
        message = self._store.message(number)
        if message is None or message.state in HANDLED:
            return _skipped(number, message)
        if self._store.move_message(number, message.state, "discarded", why):
            return HandledMessage(number, "discarded")
        return HandledMessage(number, "skipped", "somebody else has it under their hands")


def _target(by: Actor, *numbers: int) -> Target:
    """Messages belong to no tenant, so an actor with one is refused."""
    named = ", ".join(map(str, numbers[:20])) or "all"
    return Target(name=f"quarantine {named}", tenant=None if by.tenant is None else "")


def _skipped(number: int, message: Quarantined | None) -> HandledMessage:
    if message is None:
        return HandledMessage(number, "skipped", "there is no such message")
    return HandledMessage(number, "skipped", f"it is {message.state} ({message.why})")


def _tally(answers: Sequence[HandledMessage]) -> str:
    done = [answer.answer for answer in answers]
    return ", ".join(f"{done.count(word)} {word}" for word in sorted({*done}))
