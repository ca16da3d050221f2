"""A body's value as the store keeps it, and back: encoded once, handed back byte for byte; and a duplicate's handle on it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from celery import Celery, states
from celery.result import AsyncResult, ResultBase
from kombu.exceptions import EncodeError
from kombu.serialization import dumps, loads

from celery_guard.job.row import StoredResult
from celery_guard.job.verdict import Accepted, Duplicate, Enqueued

__all__ = ["decode_result", "encode_result", "encode_value", "handle_on", "marked"]


def encode_result(task: Any, value: Any, needed: bool) -> StoredResult | None:
    """Encode what a task has returned: see :func:`encode_value`."""
    return encode_value(task.app, value, needed)


def encode_value(app: Celery, value: Any, needed: bool) -> StoredResult | None:
    """Encode the value with the app's result serializer; None stands for the value None.

    Raises ``EncodeError`` where somebody waits for the value (``needed``) and it cannot be encoded.
    """
    if value is None:
        return None
    if isinstance(value, ResultBase):
        # a handle of other tasks, which Celery stores as what it can be made of again
        value = value.as_tuple()
    serializer = app.conf.result_serializer
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


def handle_on(kind: type[AsyncResult], id: str, stored: Callable[[], StoredResult | None]) -> AsyncResult:
    """A handle on a job that has succeeded, which reads its value from the store, when somebody asks.

    The result backend may have forgotten it (``result_expires``), may never have been told it, or there may be none.
    """
    handle: Any = _kind_of_handle(kind)(id)
    handle.guard_stored = stored
    return handle


#: One class of handles for each app's own class of them.
_kinds: dict[Any, Any] = {}


def _kind_of_handle(kind: Any) -> Any:
    if kind not in _kinds:

        class StoredHandle(kind):  # type: ignore[misc]
            def _get_task_meta(self) -> Any:
                if self._cache is None:
                    value = decode_result(self.guard_stored())
                    self._set_cache({"status": states.SUCCESS, "result": value, "traceback": None, "children": []})
                return self._cache

            def get(self, *args: Any, **options: Any) -> Any:
                self._get_task_meta()
                return super().get(*args, **options)

        StoredHandle.__name__ = StoredHandle.__qualname__ = kind.__name__
        _kinds[kind] = StoredHandle
    return _kinds[kind]


def marked(result: Any, answer: Enqueued) -> Any:
    """Say on a handle what became of its job: a follower is a duplicate, too."""
    result.duplicate = isinstance(answer, Duplicate) or (isinstance(answer, Accepted) and answer.holder is not None)
    result.answer = answer
    return result
