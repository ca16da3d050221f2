"""What a failure says about trying again.

::

    what the contract names        never, throttled, on: the most specific class wins, and in a tie the first of the three
    what is known by name          the table of the usual libraries
    otherwise                      unknown

Control flow (Celery's ``Retry``, ``Ignore``, ``Reject``; the guard's own interruptions; ``SystemExit``) is no failure and cannot be
named by a contract: ``on=(Exception,)`` does not catch it.

Of an exception group the worst member counts: permanent, unknown, throttled, transient. A group is not repeated as long
as one of its members would fail the same way again.

No exception is asked for its text: ``str`` and ``repr`` of a foreign exception may raise, or take for ever.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from datetime import timedelta

from .failure_class import Classified, FailureClass
from .foreign import attribute
from .known_failures import by_name
from .retry import Failures, Retry

__all__ = ["Classified", "FailureClass", "classify", "retryable"]

_UNKNOWN = Classified(FailureClass.UNKNOWN)
_GROUPS = frozenset({"builtins.BaseExceptionGroup", "exceptiongroup.BaseExceptionGroup"})
#: Members of a group that are looked at.
_MOST_MEMBERS = 1000
_WORST_FIRST = (FailureClass.PERMANENT, FailureClass.UNKNOWN, FailureClass.THROTTLED, FailureClass.TRANSIENT)


def classify(error: BaseException, retry: Retry) -> Classified:
    """The class of a failure under a contract's ``retry``, and how long the other side asks to be left alone."""
    if not _is_group(type(error)):
        return _single(error, retry)
    named = _named(tuple(kind for kind in type(error).__mro__ if _is_group(kind)), retry)
    if named is not None:
        return Classified(named)
    return _worst([_single(member, retry) for member in _members(error)])


def retryable(failure_class: FailureClass, retry: Retry) -> bool:
    """Whether a failure of this class is repeated at all. Whether it is repeated once more is a matter of the bounds."""
    if not retry.declared or failure_class in (FailureClass.PERMANENT, FailureClass.CONTROL):
        return False
    return failure_class is not FailureClass.UNKNOWN or not retry.only


def _single(error: BaseException, retry: Retry) -> Classified:
    known = next((found for kind in type(error).__mro__ if (found := by_name(kind, error)) is not None), _UNKNOWN)
    if known.failure_class is FailureClass.CONTROL:
        return known
    named = _named(type(error).__mro__, retry)
    if named is None:
        repeated = known.failure_class in (FailureClass.TRANSIENT, FailureClass.THROTTLED)
        return _UNKNOWN if retry.only and repeated else known
    if named is FailureClass.TRANSIENT and known.failure_class is FailureClass.THROTTLED:
        return known
    return Classified(named, None if named is FailureClass.PERMANENT else known.floor)


def _named(ancestors: tuple[type, ...], retry: Retry) -> FailureClass | None:
    """What the contract says about the first of the ancestors that it names."""
    if not (retry.never or retry.throttled or retry.on):
        return None
    for kind in ancestors:
        if _in(kind, retry.never):
            return FailureClass.PERMANENT
        if _in(kind, retry.throttled):
            return FailureClass.THROTTLED
        if _in(kind, retry.on):
            return FailureClass.TRANSIENT
    return None


def _in(kind: type, entries: Failures) -> bool:
    return any(_is_called(kind, entry) if isinstance(entry, str) else entry is kind for entry in entries)


def _is_called(kind: type, name: str) -> bool:
    """Whether ``name`` is the dotted name of the class, or one that its library gives it (``requests.Timeout``)."""
    own = f"{kind.__module__}.{kind.__qualname__}"
    if name == own or f"builtins.{name}" == own:
        return True
    module, _, attr = name.rpartition(".")
    # The exception exists, so its library is loaded; a name of another library is not looked up.
    if module.partition(".")[0] != own.partition(".")[0] or module not in sys.modules:
        return False
    return attribute(sys.modules[module], attr) is kind


def _is_group(kind: type) -> bool:
    return any(f"{ancestor.__module__}.{ancestor.__qualname__}" in _GROUPS for ancestor in kind.__mro__)


def _members(group: BaseException) -> Iterator[BaseException]:
    """The exceptions in a group that are no groups, however deep."""
    waiting = [group]
    seen = 0
    while waiting and seen < _MOST_MEMBERS:
        error = waiting.pop()
        seen += 1
        if _is_group(type(error)):
            inner = attribute(error, "exceptions")
            waiting.extend(inner if isinstance(inner, tuple) else ())
        else:
            yield error


def _worst(members: list[Classified]) -> Classified:
    if members and all(member.failure_class is FailureClass.CONTROL for member in members):
        return members[0]
    classes = {member.failure_class for member in members}
    floors: list[timedelta] = [member.floor for member in members if member.floor is not None]
    worst = next((found for found in _WORST_FIRST if found in classes), FailureClass.UNKNOWN)
    return Classified(worst, max(floors) if floors and worst is not FailureClass.PERMANENT else None)
