"""A body's value as the store keeps it, and back: encoded once, handed back byte for byte."""

from __future__ import annotations

from typing import Any

from kombu.exceptions import EncodeError
from kombu.serialization import dumps, loads

from celery_guard.job.row import StoredResult

__all__ = ["decode_result", "encode_result"]


def encode_result(task: Any, value: Any, needed: bool) -> StoredResult | None:
    """Encode the value with the app's result serializer; None stands for the value None.

    Raises ``EncodeError`` where somebody waits for the value (``needed``) and it cannot be encoded.
    """
    if value is None:
        return None
    serializer = task.app.conf.result_serializer
    if serializer == "pickle":
        serializer = "json"
    try:
        content_type, encoding, data = dumps(value, serializer=serializer)
    except EncodeError:
        if needed:
            raise
        return None
    return StoredResult(data.encode("utf-8") if isinstance(data, str) else bytes(data), content_type, encoding)


def decode_result(result: StoredResult | None) -> Any:
    """The value that was stored."""
    if result is None:
        return None
    return loads(result.body, result.content_type, result.content_encoding, accept={result.content_type})
