"""A group is accepted in one write: what it sends is gathered for as long as Celery walks through its members.

Celery sends a group (``chunks``, the header of a chord) member by member, inside one block of ``app.producer_or_acquire``, and throws away the handle of
each. So nobody can tell whether a member was written at once or at the end of the block, and a thousand of them cost a few statements
instead of a thousand commits. If a member cannot be sent, none of them is accepted.

Members are known by ``add_to_parent=False``, which Celery says of nothing else that it sends: whose handle is given to somebody is written at once,
also by a caller who holds a producer of the app's open.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

from .attempt import Collected

if TYPE_CHECKING:
    from .send import Sender

__all__ = ["gathering_members", "members_of"]

#: The innermost block that gathers, and whose sends.
_members: ContextVar[tuple[Sender, Collected] | None] = ContextVar("celery_guard_members", default=None)


def gathering_members(
    sender: Sender, plain: Callable[..., AbstractContextManager[Any]]
) -> Callable[..., AbstractContextManager[Any]]:
    """``app.producer_or_acquire``, at whose end the members that were sent inside are written."""

    @contextmanager
    def producer_or_acquire(producer: Any = None) -> Iterator[Any]:
        collected = Collected()
        with plain(producer) as acquired:
            token = _members.set((sender, collected))
            try:
                yield acquired
            finally:
                _members.reset(token)
            if collected.jobs:
                sender.enqueue_members(collected)

    return producer_or_acquire


def members_of(sender: Sender, options: Mapping[str, Any]) -> Collected | None:
    """Where a send with these options is gathered, if it is a member of a group that is being sent."""
    found = _members.get()
    if found is None or options.get("add_to_parent") is not False or found[0] is not sender:
        return None
    return found[1]
