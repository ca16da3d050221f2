"""``using``: for as long as its block, everything that is sent goes through one door."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from typing import Any

from celery_guard.errors import TransactionError
from celery_guard.flow.context import ownership_of, running_job
from celery_guard.store.door import AsyncDoor, Door

__all__ = ["Passing", "open_door", "through"]

#: The caller's transaction, where ``using`` has opened one.
_passage: ContextVar[_Passage | None] = ContextVar("celery_guard_passage", default=None)


class _Passage:
    """A door while its block lasts. A task that is started inside keeps a copy of the context, and may outlive the block."""

    __slots__ = ("door", "open")

    def __init__(self, door: Door) -> None:
        self.door = door
        self.open = True


@contextmanager
def through(door: Door) -> Iterator[None]:
    """Send everything inside the block through ``door``."""
    passage = _Passage(door)
    token = _passage.set(passage)
    try:
        yield
    finally:
        passage.open = False
        try:
            _passage.reset(token)
        except ValueError as error:
            raise TransactionError(
                "The block of using(...) was entered in one context and left in another, so nothing that was sent in between has seen "
                "it. That is what becomes of a plain generator as a FastAPI dependency: make it an async one, or call "
                "task.using(session).delay(...) where you send."
            ) from error


class Passing:
    """``using(transaction)`` as a block: ``with``, or ``async with``, which looks at once whether the database is the right one."""

    def __init__(self, door: Door) -> None:
        self._door = door
        self._blocks: list[AbstractContextManager[None]] = []

    def __enter__(self) -> None:
        block = through(self._door)
        block.__enter__()
        self._blocks.append(block)

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        self._blocks.pop().__exit__(kind, error, trace)

    async def __aenter__(self) -> None:
        if isinstance(self._door, AsyncDoor):
            await self._door.recognize()
        self.__enter__()

    async def __aexit__(self, kind: Any, error: Any, trace: Any) -> None:
        self.__exit__(kind, error, trace)


def open_door() -> Door | None:
    """The transaction that ``using`` has opened, or else the one in which the running body writes.

    Raises ``TransactionError`` in a task that was started inside a block of ``using`` and has outlived it.
    """
    passage = _passage.get()
    if passage is not None:
        if not passage.open:
            raise TransactionError(
                "The block of using(...) in which this task was started has ended, and its transaction with it, or soon. Wait for the "
                "task inside the block, or start it outside."
            )
        return passage.door
    job = running_job.get()
    enlisted = None if job is None else ownership_of(job).enlisted
    return None if enlisted is None else enlisted.door
