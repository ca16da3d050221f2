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

__all__ = ["FIELDS", "JobFields", "begin", "describing", "end", "install", "know"]

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
        return record

    setattr(factory, _OURS, True)
    logging.setLogRecordFactory(factory)


def begin(**fields: Any) -> Token[Mapping[str, Any] | None]:
    """From here on, in this context, records are about this job. Names are those of :data:`FIELDS`, without ``guard_``."""
    return _about.set(_named(fields))


def know(**fields: Any) -> None:
    """More is known about the job of this context; nothing is changed outside of one."""
    about = _about.get()
    if about is not None:
        _about.set({**about, **_named(fields)})


def end(token: Token[Mapping[str, Any] | None]) -> None:
    """Records are about what they were about before."""
    _about.reset(token)


@contextmanager
def describing(**fields: Any) -> Iterator[None]:
    """Records inside the block say this as well."""
    token = _about.set({**(_about.get() or {}), **_named(fields)})
    try:
        yield
    finally:
        _about.reset(token)


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
