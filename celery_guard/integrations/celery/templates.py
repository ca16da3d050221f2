"""Messages of a batch for Redis, put together from one that kombu has built.

Messages to one queue differ in their body, their headers, the job's id and a tag of the delivery, and kombu writes all of it as one text of JSON. The
headers lie in the store as the very text that kombu would make of them again. So kombu builds the first message of a kind, and the second. If the
second is what can be put together from the first, to the byte, the others are put together too; of what is stored with them, they are read but to see
that nothing was damaged. Where anybody else has a hand in what is published, or anything of a message is not as expected, kombu builds it.
"""

from __future__ import annotations

import json
import sys
from base64 import b64encode
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from uuid import uuid4

from kombu import Producer, messaging
from kombu.transport.virtual import base as virtual
from kombu.utils.uuid import uuid

from celery_guard.job.row import Outgoing, StoredPayload

from .alike import are_of
from .uuids import Uuids

__all__ = ["Templates", "tag_at_little_cost", "templates_for"]

_decode = json.JSONDecoder().raw_decode

#: Of fewer messages the first two cost more than the others save.
_WORTH_IT = 8

#: What each message goes through, from the producer to the list.
_OF_PRODUCERS = ("publish", "_prepare", "_delivery_details", "_publish", "maybe_declare")
_OF_CHANNELS = ("prepare_message", "basic_publish", "_inplace_augment_message", "encode_body", "_get_message_priority")
_OF_REDIS = ("_put", "_q_for_pri", "priority")


@dataclass(slots=True)
class _Template:
    """A kind of message: what stands before, between and behind the parts in which two of them differ."""

    key: str
    before_body: str
    before_headers: str
    before_id: str
    before_tag: str
    end: str
    #: Whether a second message was what was put together.
    proven: bool = False

    def filled(self, payload: StoredPayload, id: str, tag: str) -> str:
        """A message of this kind."""
        body = b64encode(payload.body).decode("ascii")
        return f"{self.before_body}{body}{self.before_headers}{payload.headers}{self.before_id}{id}{self.before_tag}{tag}{self.end}"


class Templates:
    """Of one batch on one channel."""

    def __init__(self, channel: Any) -> None:
        self._tag = channel._next_delivery_tag
        #: By what stands before and behind the id in the stored delivery; None for a kind that kombu is to build.
        self._of: dict[tuple[str, str], _Template | None] = {}

    def filled(self, row: Outgoing) -> tuple[str, str] | None:
        """The list's key and the message; None where kombu is to build it."""
        payload = row.payload
        if payload is None:
            return None
        template = self._of.get(_kind(row.id, payload.delivery))
        if template is None or not (template.proven and _is_whole(row, payload)):
            return None
        return template.key, template.filled(payload, row.id, self._tag())

    def learn(self, row: Outgoing, commands: Sequence[Any], prefix: str) -> None:
        """Look at what kombu has built of a row: redis-py's commands, whose keys begin with ``prefix``."""
        payload = row.payload
        if payload is None or not _is_whole(row, payload):
            return
        kind = _kind(row.id, payload.delivery)
        if kind not in self._of:
            self._of[kind] = _template(row.id, payload, commands, prefix)
        elif (template := self._of[kind]) is not None and not template.proven:
            again = _template(row.id, payload, commands, prefix)
            template.proven = again == template
            if not template.proven:
                self._of[kind] = None


def _kind(id: str, delivery: str) -> tuple[str, str]:
    """Where the id is at more places than one, the kind is this message's alone."""
    if not id:
        return delivery, id
    before, _, behind = delivery.partition(id)
    return (delivery, id) if id in behind else (before, behind)


def _is_whole(row: Outgoing, payload: StoredPayload) -> bool:
    """Whether the stored headers can go out as they are."""
    try:
        headers, end = _decode(payload.headers)
    except (ValueError, RecursionError):
        return False
    # kombu's own are all ASCII, and what is not may be more than can be sent
    if type(headers) is not dict or end != len(payload.headers) or not payload.headers.isascii():
        return False
    retries = headers.get("retries")
    return type(retries) is int and retries == row.retries


def _template(id: str, payload: StoredPayload, commands: Sequence[Any], prefix: str) -> _Template | None:
    """What one message says of its kind; None where it is not as expected."""
    body, headers, name, tag = holes = [uuid4().hex for _ in range(4)]
    try:
        [((command, key, text), options)] = commands
        message = json.loads(text)
        properties = message["properties"]
        tagged = properties["delivery_tag"]
        # behind an exchange the lists are looked up for each
        if (command, options, properties["delivery_info"]["exchange"]) != ("LPUSH", {}, ""):
            return None
        message["body"], message["headers"], properties["correlation_id"], properties["delivery_tag"] = holes
        rest = json.dumps(message)
        before_body, rest = rest.split(body)
        before_headers, rest = rest.split(f'"{headers}"')
        before_id, rest = rest.split(name)
        before_tag, end = rest.split(tag)
    except (KeyError, TypeError, ValueError, RecursionError):
        return None
    template = _Template(key.removeprefix(prefix), before_body, before_headers, before_id, before_tag, end)
    return template if template.filled(payload, id, tagged) == text else None


def templates_for(channel: Any, count: int) -> Templates | None:
    """None for so few messages that nothing is gained; and where it is not kombu's Redis alone that makes those of this channel."""
    if count < _WORTH_IT:
        return None
    redis = sys.modules.get("kombu.transport.redis")
    kind = type(channel)
    alone = (
        redis is not None
        and kind.__module__ == redis.__name__
        and vars(channel).keys().isdisjoint((*_OF_CHANNELS, *_OF_REDIS))
        and are_of(messaging, Producer, _OF_PRODUCERS)
        and are_of(virtual, kind, _OF_CHANNELS)
        and are_of(redis, kind, _OF_REDIS)
        and are_of(redis, redis.PublishBatch, ("publish", "add"))
    )
    return Templates(channel) if alone else None


def tag_at_little_cost(channel: Any) -> None:
    """Have a virtual channel draw the tags of its deliveries many at a time, where it draws them as kombu does."""
    if are_of(virtual, type(channel), ("_next_delivery_tag",)) and virtual.uuid is uuid:
        channel._next_delivery_tag = Uuids()
