"""What an HTTP answer says about trying again: its status, and ``Retry-After``."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta, timezone
from email.utils import parsedate_to_datetime
from typing import Any

from .failure_class import Classified, FailureClass
from .foreign import attribute, outcome_of

__all__ = ["LONGEST_HINT", "by_answer", "by_status", "retry_after"]

#: A server that asks for more is not believed; the contract's cap bounds the delay anyway.
LONGEST_HINT = timedelta(days=1)

#: 4xx that pass by themselves; 429 is a class of its own.
_PASSING = frozenset({408, 425})
#: 5xx that do not: not implemented, HTTP version, negotiation loops, network authentication.
_STAYING = frozenset({501, 505, 506, 508, 510, 511})

#: Where libraries keep the status, in the order in which they are asked.
_STATUS_NAMES = ("status_code", "http_status", "status", "code")

Header = Callable[[str], Any]


def by_answer(error: BaseException) -> Classified | None:
    """Classify an exception that carries an HTTP answer; None where it carries none."""
    response = attribute(error, "response")
    status = _status(error)
    if status is None:
        status = _status(response)
    if status is None:
        return None
    headers = attribute(response, "headers")
    if headers is None:
        headers = attribute(error, "headers")
    return by_status(status, _reader(headers))


def by_status(status: int, header: Header) -> Classified | None:
    """Classify an HTTP status; None for one that is no failure."""
    if status < 300:
        return None
    hint = retry_after(header)
    if status == 429 or (hint is not None and status >= 400):
        return Classified(FailureClass.THROTTLED, hint)
    if status in _PASSING or (status >= 500 and status not in _STAYING):
        return Classified(FailureClass.TRANSIENT)
    return Classified(FailureClass.PERMANENT)


def retry_after(header: Header) -> timedelta | None:
    """The answer's ``Retry-After``: seconds, or a date against the answer's own ``Date``, so that no clock of ours counts."""
    value = _text(header("Retry-After"))
    if value.isascii() and value.isdigit():
        return _bounded(timedelta(seconds=int(value[:9])))
    until, sent = _date(value), _date(_text(header("Date")))
    return None if until is None or sent is None else _bounded(until - sent)


def _status(carrier: object) -> int | None:
    for name in _STATUS_NAMES:
        value = attribute(carrier, name)
        if isinstance(value, int) and not isinstance(value, bool) and 100 <= value <= 999:
            return int(value)
    return None


def _reader(headers: object) -> Header:
    def read(name: str) -> Any:
        value = outcome_of(headers, "get", name)
        return outcome_of(headers, "get", name.lower()) if value is None else value

    return read


def _text(value: Any) -> str:
    if isinstance(value, bytes):
        value = value[:100].decode("latin-1")
    return value[:100].strip() if isinstance(value, str) else ""


def _date(text: str) -> datetime | None:
    try:
        found = parsedate_to_datetime(text)
    except (TypeError, ValueError, IndexError, OverflowError):
        return None
    return found if found.tzinfo else found.replace(tzinfo=timezone.utc)


def _bounded(hint: timedelta) -> timedelta:
    return min(max(hint, timedelta(0)), LONGEST_HINT)
