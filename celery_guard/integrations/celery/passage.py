"""``using``: for as long as its block, everything that is sent goes through one door.

A door leads into the store of the guard that opened it. Where a process has several apps, each with a guard, what is sent by one never goes
through the door of another: the row would lie where that app's relay does not look. Two guards on one store share their doors.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

from celery_guard.errors import TransactionError, WrongDatabaseError
from celery_guard.flow.context import ownership_of, running_job
from celery_guard.store.door import AsyncDoor, Door

from .attempt import current_attempt

if TYPE_CHECKING:
    from .runtime import Runtime

__all__ = ["Passing", "open_door", "through"]

#: The caller's transaction, where ``using`` has opened one.
_passage: ContextVar[_Passage | None] = ContextVar("celery_guard_passage", default=None)


class _Passage:
    """A door while its block lasts. A task that is started inside keeps a copy of the context, and may outlive the block."""

    __slots__ = ("door", "of", "open", "outer")

    def __init__(self, door: Door, of: Runtime, outer: _Passage | None) -> None:
        self.door = door
        #: Whose door it is.
        self.of = of
        #: The block around this one.
        self.outer = outer
        self.open = True


@contextmanager
def through(door: Door, of: Runtime) -> Iterator[None]:
    """Send everything inside the block through ``door``, into the store of ``of``."""
    passage = _Passage(door, of, _passage.get())
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

    def __init__(self, door: Door, of: Runtime) -> None:
        self._door = door
        self._of = of
        self._blocks: list[AbstractContextManager[None]] = []

    def __enter__(self) -> None:
        block = through(self._door, self._of)
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


def open_door(of: Runtime) -> Door | None:
    """The transaction that ``using`` has opened for this guard, or else the one in which the running body writes.

    Raises:
        WrongDatabaseError: there is such a transaction, and it is on the store of another guard.
        TransactionError: this is a task that was started inside a block of ``using`` and has outlived it.
    """
    passage = innermost = _passage.get()
    while passage is not None and not of.shares_store(passage.of):
        passage = passage.outer
    if passage is None:
        if innermost is not None:
            raise _of_another(of, innermost.of, "a block of using(...)")
        return _enlisted(of)
    if not passage.open:
        raise TransactionError(
            "The block of using(...) in which this task was started has ended, and its transaction with it, or soon. Wait for the "
            "task inside the block, or start it outside."
        )
    return passage.door


def _enlisted(of: Runtime) -> Door | None:
    job, attempt = running_job.get(), current_attempt.get()
    enlisted = None if job is None else ownership_of(job).enlisted
    if enlisted is None:
        return None
    if attempt is not None and not of.shares_store(attempt.runtime):
        raise _of_another(of, attempt.runtime, "job.transaction()")
    return enlisted.door


def _of_another(mine: Runtime, other: Runtime, what: str) -> WrongDatabaseError:
    return WrongDatabaseError(
        f"The app {mine.app.main!r} sends inside {what} of the app {other.app.main!r}, which has another store "
        f"({other.shown_store}): the transaction cannot carry a job of {mine.app.main!r}. Send it outside of the block, or inside one of "
        "using(...) of its own guard, with a transaction on its own store."
    )
