"""The way in: from a message that Celery has built to a row that counts when the transaction commits.

    draft (what Celery built) -> would it come back as it went? -> key and fingerprint -> envelope -> size -> row

Nothing is sent here. The row is the job; the relay publishes it when it is due. So a job costs its caller one INSERT,
works with the broker down, and is gone with the transaction if that rolls back.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from inspect import Signature
from typing import TYPE_CHECKING, Any

from celery_guard.contract.codec import first_difference, wire_size
from celery_guard.contract.contract import Effective
from celery_guard.contract.key import identify
from celery_guard.errors import EnqueueError, PayloadError, PayloadTooLargeError
from celery_guard.job.encryption import NO_ENCRYPTION, Encryption
from celery_guard.job.envelope import ENCRYPTED, HEADER, PLAIN, Envelope
from celery_guard.job.row import LONGEST_NAME, NewJob, StoredPayload
from celery_guard.job.state import Kind
from celery_guard.job.verdict import Enqueued
from celery_guard.store.door import AsyncDoor, Door

from .context import RunningJob, ownership_of

if TYPE_CHECKING:
    from celery_guard.store.protocol import Store

__all__ = ["Draft", "aenqueue", "carry", "enqueue", "prepare", "refuse_large", "seal"]


@dataclass(slots=True)
class Draft:
    """A message as Celery built it, before the guard has accepted it. Nobody changes it; to freeze it would cost a call a field."""

    id: str
    task: str
    queue: str
    args: Sequence[Any]
    kwargs: Mapping[str, Any]
    #: (args, kwargs) decoded again from ``body``; None where the sender is Celery itself and not a person.
    came_back: tuple[Any, Any] | None
    body: bytes
    headers: dict[str, Any]
    delivery: Mapping[str, Any]
    priority: int | None = None
    delay: timedelta = timedelta(0)
    expires_in: timedelta | None = None
    in_canvas: bool = False
    parent_id: str | None = None
    root_id: str | None = None
    group_id: str | None = None
    #: The version of each argument that is a payload, and those arguments as the body will see them.
    versions: Mapping[str, int] = field(default_factory=dict)
    payloads: Mapping[str, Any] = field(default_factory=dict)


def prepare(
    draft: Draft,
    contract: Effective,
    signature: Signature | None,
    parent: RunningJob | None,
    payload_limit: int,
    secret: bytes | None = None,
    encryption: Encryption = NO_ENCRYPTION,
) -> NewJob:
    """Make the row of a guarded job, or refuse it before anything is written. With a ``secret`` its hashes are keyed.

    Raises:
        EnqueueError: a name is longer than 255 characters: the queue's, say.
        PayloadError: a value would not come back equal and of the same type; names its path.
        PayloadTooLargeError: the encoded message is over ``payload_limit`` bytes.
        TypeError: the arguments do not fit the task's signature.
    """
    if draft.came_back is not None:
        _refuse_changed(draft, draft.came_back)
    deadline = None if parent is None else ownership_of(parent).granted.deadline
    identity = identify(contract, contract.scope, signature, draft.args, draft.kwargs, draft.payloads, secret)
    envelope = Envelope(
        id=draft.id,
        key=identity.key,
        fingerprint=identity.fingerprint,
        generation=0,
        created=time.time(),
        deadline=deadline,
        tenant=identity.tenant if identity.tenant is not None or parent is None else parent.tenant,
        correlation_id=draft.id if parent is None else parent.correlation_id,
        payloads=draft.versions,
    )
    payload = seal(draft, envelope, payload_limit, encryption)
    return NewJob(
        id=draft.id,
        task=draft.task,
        queue=draft.queue,
        payload=payload,
        priority=draft.priority,
        tenant=envelope.tenant,
        key=identity.key,
        fingerprint=identity.fingerprint,
        delay=draft.delay,
        deadline=deadline,
        deadline_in=_earliest(draft.expires_in, contract.timing.deadline),
        in_canvas=draft.in_canvas,
        parent_id=draft.parent_id,
        root_id=draft.root_id,
        group_id=draft.group_id,
        correlation_id=envelope.correlation_id,
    )


def carry(draft: Draft, payload_limit: int) -> NewJob:
    """Make the row of a message whose task has no guard: it travels with the transaction and ends when published."""
    return NewJob(
        id=draft.id,
        task=draft.task,
        queue=draft.queue,
        payload=seal(draft, None, payload_limit),
        kind=Kind.CARRIED,
        priority=draft.priority,
        delay=draft.delay,
        deadline_in=draft.expires_in,
        parent_id=draft.parent_id,
        root_id=draft.root_id,
        group_id=draft.group_id,
    )


def seal(
    draft: Draft, envelope: Envelope | None, payload_limit: int, encryption: Encryption = NO_ENCRYPTION
) -> StoredPayload:
    """The message as it is stored, with the envelope in its headers, if it is not too large. One without an envelope is never encrypted."""
    _refuse_long_names(draft, None if envelope is None else envelope.tenant)
    body, headers, delivery = draft.body, draft.headers, draft.delivery
    if envelope is not None:
        if encryption.on:
            body, headers, delivery = encryption.encrypt_message(draft.id, body, headers, delivery)
        said = {**envelope.to_header(), "version": ENCRYPTED if encryption.on else PLAIN}
        headers = {**headers, HEADER: said}
    try:
        payload = StoredPayload(body, json.dumps(headers), json.dumps(delivery))
    except (TypeError, ValueError) as error:
        raise PayloadError(
            f"{draft.task}: a header or delivery option is not plain JSON ({error}). Headers travel with every attempt; "
            "use strings, numbers, lists and mappings with string keys.",
            "headers",
        ) from error
    refuse_large(draft.task, payload, payload_limit)
    return payload


def refuse_large(task: str, payload: StoredPayload, payload_limit: int) -> None:
    """Raise ``PayloadTooLargeError`` for a message over the limit, in bytes on the wire."""
    size = wire_size(payload.body, payload.headers, payload.delivery)
    if size > payload_limit:
        raise PayloadTooLargeError(
            f"{task}: the message has {size} bytes on the wire (body {len(payload.body)} before base64, headers "
            f"{len(payload.headers)}); the limit (setting payload_limit) is {payload_limit}. Store the data and pass its id.",
            size,
            payload_limit,
        )


def enqueue(to: Store | Door, jobs: Sequence[NewJob]) -> list[Enqueued]:
    """Write the rows: in a transaction of the store's own, or through a door into the caller's."""
    return to.enqueue(jobs)


async def aenqueue(store: Store, door: Door | None, jobs: Sequence[NewJob]) -> list[Enqueued]:
    """As :func:`enqueue`, without holding up the event loop: the store's own write is made by another thread."""
    if door is None:
        import asyncio

        return await asyncio.to_thread(store.enqueue, jobs)
    if isinstance(door, AsyncDoor):
        return await door.aenqueue(jobs)
    return door.enqueue(jobs)


def _refuse_long_names(draft: Draft, tenant: str | None) -> None:
    names = {
        "task name": draft.task, "queue": draft.queue, "task id": draft.id, "tenant": tenant,
        "parent id": draft.parent_id, "root id": draft.root_id, "group id": draft.group_id,
    }  # fmt: skip
    for what, name in names.items():
        if name is not None and len(name) > LONGEST_NAME:
            raise EnqueueError(
                f"{draft.task[:80]}: the {what} has {len(name)} characters ({name[:40]}…), stores keep {LONGEST_NAME}. Use a shorter one."
            )


def _refuse_changed(draft: Draft, came_back: tuple[Any, Any]) -> None:
    for name, sent, received in (("args", draft.args, came_back[0]), ("kwargs", draft.kwargs, came_back[1])):
        difference = first_difference(sent, received, name)
        if difference is not None:
            raise PayloadError(
                f"{draft.task}: {difference.path} would not come back as it went: {difference.why}. "
                "Pass a value that the serializer keeps, such as a string, a number or an id.",
                difference.path,
            )


def _earliest(a: timedelta | None, b: timedelta | None) -> timedelta | None:
    return b if a is None else a if b is None else min(a, b)
