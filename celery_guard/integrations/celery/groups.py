"""A group is accepted in one write: what it sends is gathered for as long as Celery walks through its members.

Celery sends a group (``chunks``, the header of a chord) member by member, inside one block of ``app.producer_or_acquire``, and throws away the handle of
each. So nobody can tell whether a member was written at once or a little later, and a thousand of them cost a few statements instead of a thousand
commits. If a member cannot be sent, none that was gathered with it is accepted. In a SQL database the write is one transaction; on a Redis store it is a script for each
500 jobs, or 4 MiB, so a process that dies in the middle of a larger one leaves the first of them accepted.

A chord's header may be a generator that takes its time, and its first members are to run meanwhile. So the first is written at once, for nobody knows when the
second comes; what was gathered is written as soon as the walk has paused, and whenever there are a thousand.

Members are known by the id of their group, or (heads of chains) by what is behind them, together with ``add_to_parent=False``. Whose handle is given to
somebody is written at once, also by a caller who holds a producer of the app's open.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar
from time import monotonic
from typing import TYPE_CHECKING, Any

from celery_guard.job.row import NewJob

from .attempt import Collected
from .capture import captures

if TYPE_CHECKING:
    from .send import Sender

__all__ = ["Members", "gathering_members", "members_of"]

#: How many members are gathered at most.
_MOST = 1000

#: What takes longer than this between two members is a pause (seconds): a list takes a fraction of a millisecond.
_PAUSE = 0.25


class Members:
    """The members that were sent since the last write."""

    def __init__(self, sender: Sender) -> None:
        self.sender = sender
        self._gathered = Collected()
        self._last = monotonic()
        self._any = False

    def add(self, job: NewJob, result: Any, *, of_chord: bool) -> None:
        """Gather one more; write them all, if that is due. Raises what speaks against the first that was refused."""
        self._gathered.jobs.append(job)
        self._gathered.results.append(result)
        paused = monotonic() - self._last > _PAUSE
        if paused or (of_chord and not self._any) or len(self._gathered.jobs) >= _MOST:
            self.write()
        self._any = True
        self._last = monotonic()

    def write(self) -> None:
        """Write them. Raises what speaks against the first that was refused; the others are accepted."""
        gathered, self._gathered = self._gathered, Collected()
        if gathered.jobs:
            self.sender.enqueue_members(gathered)


#: The innermost block that gathers.
_members: ContextVar[Members | None] = ContextVar("celery_guard_members", default=None)


def gathering_members(
    sender: Sender, plain: Callable[..., AbstractContextManager[Any]]
) -> Callable[..., AbstractContextManager[Any]]:
    """``app.producer_or_acquire``, at whose end the members that were sent inside are written."""

    def producer_or_acquire(producer: Any = None) -> AbstractContextManager[Any]:
        return nullcontext(producer) if captures(producer) else gathering(producer)

    @contextmanager
    def gathering(producer: Any) -> Iterator[Any]:
        members = Members(sender)
        with plain(producer) as acquired:
            token = _members.set(members)
            try:
                yield acquired
            finally:
                _members.reset(token)
            members.write()

    return producer_or_acquire


def members_of(sender: Sender, options: Mapping[str, Any]) -> Members | None:
    """Where a send with these options is gathered, if it is a member of a group that is being sent."""
    found = _members.get()
    if found is None or found.sender is not sender:
        return None
    is_member = options.get("add_to_parent") is False and (options.get("group_id") or options.get("chain"))
    return found if is_member else None
