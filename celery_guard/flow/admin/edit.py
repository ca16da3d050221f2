"""Edits: a person corrects the arguments of one dead letter, and it is sent again with them.

    read (masked) -> a person changes it -> sensitive fields put back -> refused where it cannot be -> intent and changes in the audit
                  -> in one transaction: is it still dead, and still this message? the next generation of it is written, and it waits again

It stays the same job: what hangs on it goes on, its key is taken again, and the message that was wrong stays beside the new one (``--generation``).
Whoever edits a message first wins; the second is told, and has changed nothing.

Not editable are fields that the contract calls sensitive, which nobody is shown and nobody types, and those that make up the job's
key or tenant: with another key it would be another job, which is enqueued, not edited.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from inspect import Signature
from typing import Any, Protocol

from celery_guard.contract.codec import first_difference
from celery_guard.contract.contract import Effective
from celery_guard.contract.key import Identity, identify
from celery_guard.contract.path import spell
from celery_guard.contract.payload import encoded
from celery_guard.contract.sensitive import Locked, masked_call, restored_call, secret_for
from celery_guard.contract.shape import Shape
from celery_guard.errors import (
    EditRefused,
    EncryptionKeyError,
    EnqueueError,
    GuardError,
    MoveRefused,
    PayloadVersionError,
)
from celery_guard.flow.enqueue import refuse_large
from celery_guard.job.envelope import HEADER, Envelope, open_header
from celery_guard.job.letter import Edit
from celery_guard.job.row import Job, StoredPayload
from celery_guard.job.state import State
from celery_guard.settings import Settings
from celery_guard.store.protocol import Store

from .actor import Action, Actor, Target
from .audit import Authority
from .seen import seen_job

__all__ = ["Call", "Change", "Edited", "Edits", "Messages"]

#: As much of a value, and as many changes, as the audit keeps.
_LONGEST = 200
_MOST = 50


@dataclass(frozen=True, slots=True)
class Call:
    """The arguments of a message, as they travel. Sensitive ones are ``***``, and stay what they are where they are left so.

    In an edit ``args`` or ``kwargs`` may be None: they stay as they are.
    """

    args: Sequence[Any] | None
    kwargs: Mapping[str, Any] | None
    #: The message that they are of, counted from 0.
    generation: int = 0


@dataclass(frozen=True, slots=True)
class Change:
    """One argument that is another: ``kwargs['order']['total']``, and its values; "" for one that is not there."""

    path: str
    was: str
    now: str

    def __str__(self) -> str:
        return f"{self.path}: {self.was or 'nothing'} -> {self.now or 'nothing'}"


@dataclass(frozen=True, slots=True)
class Edited:
    """What an edit changes, or has changed."""

    id: str
    #: The message that the job goes on with.
    generation: int
    changes: tuple[Change, ...]


class Messages(Protocol):
    """How Celery's messages are read and written; the tasks that this process knows."""

    def decoded(self, payload: StoredPayload) -> tuple[Any, Any, Any]:
        """(args, kwargs, embed). What is damaged raises an exception of any kind."""
        ...

    def opened(self, id: str, payload: StoredPayload) -> StoredPayload:
        """The message of job ``id``, decrypted. Raises ``EncryptionKeyError`` where its key is not known here."""
        ...

    def encrypted(self, id: str, payload: StoredPayload) -> StoredPayload:
        """A plain message as it is stored: encrypted where this process encrypts."""
        ...

    def rewritten(
        self, payload: StoredPayload, args: Any, kwargs: Any, embed: Any, headers: Mapping[str, Any]
    ) -> StoredPayload:
        """The same message with other arguments and headers, encoded as it was. Raises ``PayloadError``."""
        ...

    def known(self, task: str) -> tuple[Effective, Shape] | None:
        """What a task promises, and how its arguments travel; None where this process does not know it."""
        ...


@dataclass(frozen=True, slots=True)
class _Opened:
    """A dead letter, its task and its message, opened."""

    job: Job
    contract: Effective
    shape: Shape
    payload: StoredPayload
    generation: int
    args: Sequence[Any]
    kwargs: Mapping[str, Any]
    embed: Any

    @property
    def signature(self) -> Signature | None:
        return self.shape.signature

    def masked(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> tuple[list[Any], dict[str, Any]]:
        return masked_call(self.contract.sensitive, self.signature, args, kwargs)


class Edits:
    """``guard.dlq.edits``: arguments of a dead letter, corrected. Each method is told who acts, and raises ``NotAllowed`` where they may not."""

    def __init__(
        self,
        store: Store,
        authority: Authority,
        messages: Messages,
        replayable: Callable[[str], bool],
        settings: Settings,
    ) -> None:
        self._store = store
        self._authority = authority
        self._messages = messages
        self._replayable = replayable
        self._settings = settings

    def read(self, id: str, *, by: Actor, reason: str) -> Call:
        """The arguments of a dead letter, to be changed and given to :meth:`replay`; sensitive ones are masked. The audit has who asked.

        Raises ``NotFound``, ``ReasonMissing``, ``MoveRefused`` where the job is not dead, ``EditRefused`` where its message cannot be opened.
        """
        job = self._seen(id, by)
        with self._authority.act(by, Action.JOBS_REVEAL, _target(job), reason):
            opened = self._opened(job, job.generation)
            return Call(*opened.masked(opened.args, opened.kwargs), opened.generation)

    def preview(self, id: str, call: Call, *, by: Actor) -> Edited:
        """What :meth:`replay` would change; nothing is. Raises what that would raise."""
        job = self._seen(id, by)
        self._authority.look(by, Action.DLQ_EDIT, _target(job))
        return self._prepared(job, call)[1]

    def replay(self, id: str, call: Call, *, by: Actor, reason: str) -> Edited:
        """Send a dead letter again with these arguments.

        Args:
            call: as :meth:`read` gave it, with what is to be changed; ``generation`` says which message was edited.

        Raises:
            NotFound: there is no such job.
            ReasonMissing: nobody said why.
            MoveRefused: it is not dead any more, somebody else has edited it meanwhile, or another job holds its key.
            EditRefused: a sensitive field or one of the key was changed, nothing was, or the task would not take these arguments.
        """
        job = self._seen(id, by)
        with self._authority.act(by, Action.DLQ_EDIT, _target(job), reason) as acting:
            edit, edited = self._prepared(job, call)
            acting.intend("; ".join(map(str, edited.changes)))
            answer = self._store.replay_edited(edit)
            if answer.answer != "replayed":
                raise MoveRefused(f"Job {id} was not sent again: {answer.why}. Nothing was changed.")
            acting.result = f"sent again with message {edited.generation} in place of {edit.generation}"
        return edited

    def _seen(self, id: str, by: Actor) -> Job:
        return seen_job(self._store, self._authority, id, by, Action.DLQ_EDIT)

    def _opened(self, job: Job, generation: int) -> _Opened:
        if job.state is not State.DEAD:
            raise MoveRefused(f"Job {job.id} is {job.shown_state}; only a dead letter is edited.")
        if not self._replayable(job.task):
            raise MoveRefused(f"Job {job.id}: its contract says that its effects are not to be repeated.")
        known = self._messages.known(job.task)
        if known is None:
            raise EditRefused(
                f"Job {job.id} is of the task {job.task}, which this app does not know, so nobody can say whether it would take the "
                "arguments. Edit it with the app that has the task."
            )
        payload = self._store.payload(job.id, generation)
        if payload is None:
            raise EditRefused(f"The message of job {job.id} (generation {generation}) is not in the store.")
        try:
            payload = self._messages.opened(job.id, payload)
            args, kwargs, embed = self._messages.decoded(payload)
        except EncryptionKeyError:
            raise
        except Exception as error:
            # what is damaged is so in any way
            raise EditRefused(
                f"The message of job {job.id} cannot be opened ({type(error).__name__}), so there is nothing to edit. Enqueue the job anew."
            ) from error
        return _Opened(job, *known, payload, generation, args, kwargs, embed)

    def _prepared(self, job: Job, call: Call) -> tuple[Edit, Edited]:
        opened = self._opened(job, call.generation)
        was = opened.args, opened.kwargs
        shown = opened.masked(*was)
        typed = shown[0] if call.args is None else call.args, shown[1] if call.kwargs is None else call.kwargs
        try:
            args, kwargs = restored_call(opened.contract.sensitive, opened.signature, typed, was)
        except Locked as locked:
            raise EditRefused(f"Job {job.id}: {locked} Leave sensitive fields as they are shown.") from None
        changes = _changes(shown, opened.masked(args, kwargs))
        if not changes:
            raise EditRefused(
                f"Job {job.id}: nothing was changed. To send it again as it is: guard dlq replay {job.id}"
            )
        envelope, generation = _envelope(opened), opened.generation + 1
        identity = self._identity(opened, args, kwargs, envelope.payloads)
        envelope = replace(envelope, generation=generation, fingerprint=identity.fingerprint)
        payload = self._written(opened, args, kwargs, envelope)
        return Edit(job.id, opened.generation, payload, identity.fingerprint), Edited(job.id, generation, changes)

    def _identity(
        self, opened: _Opened, args: Sequence[Any], kwargs: Mapping[str, Any], versions: Mapping[str, int]
    ) -> Identity:
        """What the call is known by. Raises ``EditRefused`` where the task would not take it, or its key or tenant is another."""
        job = opened.job
        try:
            now = self._identified(opened, args, kwargs, versions)
        except PayloadVersionError as error:
            raise EditRefused(f"Job {job.id}: {error} Edit it with the app of the newer release.") from None
        except (EnqueueError, TypeError) as error:
            raise EditRefused(f"Job {job.id}: {job.task} would not take these arguments: {error}") from None
        try:
            was = self._identified(opened, opened.args, opened.kwargs, versions)
        except (GuardError, TypeError):
            # that may be what it died of; the row says what it was known by
            was = Identity(job.key, None, job.tenant, "")
        for what, before, after, stored in (
            ("key", was.key, now.key, job.key),
            ("tenant", was.tenant, now.tenant, job.tenant),
        ):
            if after not in (before, stored):
                raise EditRefused(
                    f"Job {job.id}: with these arguments it would have another {what}, and so be another job. Leave what Contract.{what} of "
                    f"{job.task} names as it was, or resolve this letter and enqueue the other job."
                )
        return now

    def _identified(
        self, opened: _Opened, args: Sequence[Any], kwargs: Mapping[str, Any], versions: Mapping[str, int]
    ) -> Identity:
        signature, contract = opened.signature, opened.contract
        if signature is not None:
            signature.bind(*args, **kwargs)
        _, _, payloads = opened.shape.open(args, kwargs, versions)
        for name, value in payloads.items():
            encoded(value, name)
        secret = secret_for(contract, self._settings)
        return identify(contract, contract.scope, signature, args, kwargs, payloads, secret)

    def _written(
        self, opened: _Opened, args: Sequence[Any], kwargs: Mapping[str, Any], envelope: Envelope
    ) -> StoredPayload:
        job = opened.job
        headers = {**json.loads(opened.payload.headers), HEADER: envelope.to_header()}
        try:
            plain = self._messages.rewritten(opened.payload, args, kwargs, opened.embed, headers)
            payload = self._messages.encrypted(job.id, plain)
            refuse_large(job.task, payload, self._settings.payload_limit)
        except EnqueueError as error:
            raise EditRefused(f"Job {job.id}: {error}") from None
        came_back = self._messages.decoded(plain)
        for name, one, other in zip(("args", "kwargs", "embed"), (args, kwargs, opened.embed), came_back, strict=True):
            if difference := first_difference(one, other, name):
                raise EditRefused(f"Job {job.id}: {difference.path} would not come back as it went: {difference.why}.")
        return payload


def _target(job: Job) -> Target:
    return Target((job.id,), tenant=job.tenant)


def _envelope(opened: _Opened) -> Envelope:
    header = json.loads(opened.payload.headers).get(HEADER)
    if header is None:
        return Envelope(id=opened.job.id, key=opened.job.key, tenant=opened.job.tenant)
    envelope = open_header(header)
    if not isinstance(envelope, Envelope):
        raise EditRefused(f"Job {opened.job.id}: {envelope.reason}. Edit it with a newer release of the guard.")
    return envelope


def _changes(was: tuple[Any, Any], now: tuple[Any, Any]) -> tuple[Change, ...]:
    found = [*_between(was[0], now[0], "args", []), *_between(was[1], now[1], "kwargs", [])]
    more = len(found) - _MOST
    return (*found[:_MOST], Change("…", f"{more} more", f"{more} more")) if more > 0 else tuple(found)


_NOTHING = object()


def _between(was: Any, now: Any, root: str, steps: list[Any]) -> Iterator[Change]:
    """What differs, in reading order."""
    if isinstance(was, Mapping) and isinstance(now, Mapping):
        for key in {**was, **now}:
            yield from _between(was.get(key, _NOTHING), now.get(key, _NOTHING), root, [*steps, key])
    elif isinstance(was, list) and isinstance(now, list):
        for place in range(max(len(was), len(now))):
            one, other = (side[place] if place < len(side) else _NOTHING for side in (was, now))
            yield from _between(one, other, root, [*steps, place])
    elif was is _NOTHING or now is _NOTHING or first_difference(was, now) is not None:
        yield Change(spell(root, steps), _shown(was), _shown(now))


def _shown(value: Any) -> str:
    if value is _NOTHING:
        return ""
    text = json.dumps(value, ensure_ascii=False, default=repr)
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"
