"""Keeping the values of sensitive fields out of what is written and told of an attempt."""

from __future__ import annotations

from dataclasses import replace

from celery_guard.contract.sensitive import Hidden
from celery_guard.errors import JobFailed

from .delivery import Again, Dead, Ending
from .row import StoredFailure
from .settlement import Settlement
from .stack import format_chain
from .text import message_of, type_name_of

__all__ = ["conceal", "conceal_error", "conceal_failure"]

#: As much of an exception's text as is looked through.
_LIMIT = 256 * 1024


def conceal(hidden: Hidden, written: Settlement, ending: Ending) -> tuple[Settlement, Ending]:
    """What settle writes and what Celery is told, without the values."""
    if not hidden:
        return written, ending
    if written.failure is not None:
        written = replace(written, failure=conceal_failure(hidden, written.failure))
    if isinstance(ending, (Again, Dead)) and ending.error is not None:
        ending = replace(ending, error=conceal_error(hidden, ending.error))
    return written, ending


def conceal_failure(hidden: Hidden, failure: StoredFailure) -> StoredFailure:
    """The record of a failed attempt, without the values."""
    if not hidden:
        return failure
    return replace(failure, message=hidden.text(failure.message), traceback=hidden.text(failure.traceback))


def conceal_error(hidden: Hidden, error: BaseException) -> BaseException:
    """The exception itself where none of its texts has a value in it; else one that says the same without them.

    That one is a :class:`~celery_guard.JobFailed` with the type's name: an exception of a class that is not ours cannot be made anew.
    """
    if not hidden:
        return error
    whole, left_out = format_chain(error, _LIMIT)
    if not left_out and hidden.text(whole) == whole and not hidden.shows_in(repr(error.args)):
        return error
    name = type_name_of(error)
    message, _ = message_of(error, _LIMIT)
    return JobFailed(f"{name}: {hidden.text(message)}", name)
