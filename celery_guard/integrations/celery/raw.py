"""A message as it is kept when nobody can open it: body, headers and properties as they were, or as near as they can be kept."""

from __future__ import annotations

import json
import reprlib
from typing import Any

from .opening import raw_body

__all__ = ["as_text", "delivery_of", "raw_body"]

#: Properties that belong to the message and not to one delivery of it.
_PROPERTIES = ("correlation_id", "reply_to", "priority")


def as_text(headers: Any) -> str:
    """The headers as JSON; as Python prints them where they cannot be that."""
    try:
        return json.dumps(headers, default=repr)
    except (TypeError, ValueError, RecursionError):
        return json.dumps({"unreadable": reprlib.repr(headers)})


def delivery_of(message: Any) -> str:
    """What a message is published again with, beside body and headers, as JSON."""
    properties = message.properties if isinstance(message.properties, dict) else {}
    kept = {name: properties[name] for name in _PROPERTIES if isinstance(properties.get(name), (str, int))}
    return json.dumps(kept)
