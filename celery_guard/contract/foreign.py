"""Attributes of other people's exceptions, read without trust.

An exception of a library may answer an attribute with a property that raises (``httpx`` does for a request that was never set).
Whatever happens there, the failure that is being classified is the one that counts.
"""

from __future__ import annotations

from typing import Any

__all__ = ["attribute", "outcome_of"]


def attribute(thing: object, name: str) -> Any:
    """The attribute, or None where it is missing or cannot be read."""
    try:
        return getattr(thing, name, None)
    except Exception:  # noqa: BLE001 - a foreign property may raise anything; then it has nothing to say
        return None


def outcome_of(thing: object, name: str, *arguments: object) -> Any:
    """What the method ``name`` returns; None where there is none or it raises."""
    method = attribute(thing, name)
    if not callable(method):
        return None
    try:
        return method(*arguments)
    except Exception:  # noqa: BLE001 - as above
        return None
