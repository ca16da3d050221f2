"""An exception as text: bounded, safe on every database, and complete enough to act on.

The exception itself is not kept. Nothing imports or unpickles it later, so a class that cannot be pickled, or does not
exist in the reader's process, costs nothing. What is kept:

* the qualified name of its class, its message (:data:`MESSAGE_LIMIT`), and its traceback with what it was raised from
  (:data:`TRACEBACK_LIMIT`). Limits are bytes of UTF-8; cuts are made between characters and marked;
* no NUL and no lone surrogate, which databases refuse;
* no local variable and no argument: of values only what the exception itself says;
* its cause group: a short hash of (task, class, place), the same for what failed alike. The place is the module and the
  function of the innermost frame of the user's code, without the line, so that it outlives an edit above it. The user's
  code is what is neither standard library nor in site-packages, and the package in which the body starts, wherever that
  is installed. Where there is no such frame it is the innermost one.

Describing a failure never raises, whatever the exception does when it is looked at.
"""

from __future__ import annotations

import hashlib
import json

from .row import StoredFailure
from .stack import format_chain, place_of
from .text import clean, cut_middle, message_of, type_name_of

__all__ = ["MESSAGE_LIMIT", "TRACEBACK_LIMIT", "cause_of", "describe"]

#: Bytes of UTF-8 of a message, the mark of a cut included.
MESSAGE_LIMIT = 2 * 1024
#: Bytes of UTF-8 of a traceback, the mark of a cut included. Its head and its tail are kept.
TRACEBACK_LIMIT = 16 * 1024


def describe(
    error: BaseException, *, failure_class: str, task: str, worker: str, fence: int, attempt: int
) -> StoredFailure:
    """The failure of one attempt, as it is stored."""
    type_name = type_name_of(error)
    message, message_cut = message_of(error, MESSAGE_LIMIT)
    whole, left_out = format_chain(error, MESSAGE_LIMIT)
    traceback, traceback_cut = cut_middle(clean(whole), TRACEBACK_LIMIT)
    return StoredFailure(
        failure_class=str(failure_class),
        type_name=type_name,
        message=message,
        traceback=traceback,
        cause=cause_of(task, type_name, place_of(error)),
        worker=clean(worker),
        truncated=message_cut or left_out or traceback_cut,
        fence=fence,
        attempt=attempt,
    )


def cause_of(task: str, type_name: str, place: str) -> str:
    """The cause group: 16 hexadecimal digits."""
    return hashlib.sha256(json.dumps([task, type_name, place]).encode()).hexdigest()[:16]
