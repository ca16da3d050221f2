"""Log records that say which job they are about: the guard's, Celery's and the user's own.

Inside a job every record of the process gets the attributes below. They all begin with ``guard_``, so no formatter, filter or ``extra=`` of anybody's
meets them by accident; records outside a job are left as they are. It is done by the record factory, so it holds for every logger and handler, whoever
set them up. The fields live in a context variable: they follow the job in every pool, into coroutines and greenlets, but not into
a thread that the body starts by itself.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar, Token
from typing import Any

from celery_guard.contract.sensitive import NOTHING_HIDDEN, Hidden

__all__ = ["FIELDS", "JobFields", "begin", "describing", "end", "hidden_here", "hide", "install", "know"]

#: Attributes of a record inside a job. Those of which nothing is known are not set.
FIELDS = {
    "guard_job_id": "the job's id",
    "guard_task": "the task",
    "guard_attempt": "the attempt, from 1",
    "guard_key": "the hash of the job's key",
    "guard_correlation_id": "the id that ties together all jobs of one request",
    "guard_tenant": "the tenant",
    "guard_trace_id": "the trace, where there is one",
    "guard_span_id": "the attempt's span",
    "guard_event": "on the guard's own lines: what happened",
    "guard_transition": "on the guard's own lines: the job's move, such as running->succeeded",
    "guard_failure_class": "on the guard's own lines: the class of the failure",
}

_OURS = "_celery_guard"

_about: ContextVar[Mapping[str, Any] | None] = ContextVar("celery_guard_log_fields", default=None)
_hidden: ContextVar[Hidden] = ContextVar("celery_guard_log_hidden", default=NOTHING_HIDDEN)

_Tokens = tuple["Token[Mapping[str, Any] | None]", "Token[Hidden]"]


def install() -> None:
    """Have this process's records say which job they are about. Once is enough."""
    plain: Callable[..., logging.LogRecord] = logging.getLogRecordFactory()
    if hasattr(plain, _OURS):
        return

    def factory(*args: Any, **kwargs: Any) -> logging.LogRecord:
        record = plain(*args, **kwargs)
        about = _about.get()
        if about is not None:
            record.__dict__.update(about)
        hidden = _hidden.get()
        if hidden:
            _conceal(record, hidden)
        return record

    setattr(factory, _OURS, True)
    logging.setLogRecordFactory(factory)


def begin(hidden: Hidden = NOTHING_HIDDEN, **fields: Any) -> _Tokens:
    """From here on, in this context, records are about this job. Names are those of :data:`FIELDS`, without ``guard_``.

    No record says what is ``hidden``.
    """
    return _about.set(_named(fields)), _hidden.set(hidden)


def hidden_here() -> Hidden:
    """What no record of this context may say."""
    return _hidden.get()


def hide(hidden: Hidden) -> None:
    """No record of the job of this context says what is ``hidden``, which may grow; nothing is changed outside of one."""
    if _about.get() is not None and hidden is not NOTHING_HIDDEN:
        _hidden.set(hidden)


def know(**fields: Any) -> None:
    """More is known about the job of this context; nothing is changed outside of one."""
    about = _about.get()
    if about is not None:
        _about.set({**about, **_named(fields)})


def end(tokens: _Tokens) -> None:
    """Records are about what they were about before."""
    about, hidden = tokens
    _about.reset(about)
    _hidden.reset(hidden)


@contextmanager
def describing(**fields: Any) -> Iterator[None]:
    """Records inside the block say this as well."""
    token = _about.set({**(_about.get() or {}), **_named(fields)})
    try:
        yield
    finally:
        _about.reset(token)


def _conceal(record: logging.LogRecord, hidden: Hidden) -> None:
    try:
        said = record.getMessage()
    except Exception:  # noqa: BLE001 - a message that does not fit its arguments is the handlers' affair, which say so; without the arguments
        record.args = None
        return
    if hidden.text(said) != said:
        record.msg, record.args = hidden.text(said), None
    if record.exc_info:
        text = logging.Formatter().formatException(record.exc_info)
        if hidden.text(text) != text:
            record.exc_text, record.exc_info = hidden.text(text), None


def _named(fields: Mapping[str, Any]) -> dict[str, Any]:
    return {f"guard_{name}": value for name, value in fields.items() if value is not None}


class JobFields(logging.Filter):
    """For handlers whose format names the fields: a record that is about no job has a dash in each.

    >>> handler = logging.StreamHandler()
    >>> handler.setFormatter(logging.Formatter("%(guard_job_id)s %(message)s"))
    >>> handler.addFilter(JobFields())
    """

    def filter(self, record: logging.LogRecord) -> bool:
        """Let it pass, with every field set."""
        for name in FIELDS:
            record.__dict__.setdefault(name, "-")
        return True
