"""The faults, loaded into the workers (``--include``) and the loader of an import. The example is not changed for them.

* A flaky row's body raises ``ConnectionError`` the first times it is called, whoever calls it.
* The process that runs a deadly row gets SIGKILL, once: before the row is written, or after the body has returned.
* Every message of a chosen row is put on the broker twice.
* A worker whose demo has died ends itself.

What happened is noted in files, one line each, so that it can be counted whoever is killed.
"""

from __future__ import annotations

import base64
import json
import os
import signal
import threading
import time
from importlib import import_module
from pathlib import Path
from typing import Any
from uuid import uuid4

from celery import signals

from celery_guard.integrations.celery.files import Channel

from .plan import FOLDER, PARENT

__all__ = ["FLAKY_CALLS", "note"]

#: So many calls of a flaky row fail.
FLAKY_CALLS = 2

_folder = Path(os.environ[FOLDER])
_plan = json.loads((_folder / "faults.json").read_text())
_flaky, _twice, _deadly = frozenset(_plan["flaky"]), frozenset(_plan["twice"]), _plan["deadly"]


def note(what: str, line: str) -> None:
    """Add a line to a file of notes, in one write."""
    descriptor = os.open(_folder / f"{what}.notes", os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    try:
        os.write(descriptor, f"{line}\n".encode())
    finally:
        os.close(descriptor)


def _make_rows_fail() -> None:
    rows: Any = import_module("airports.rows")
    read_airport = rows.read_airport

    def fail_at_first(batch_id: int, row: dict[str, str]) -> Any:
        iata = row["iata"]
        _die_under(iata, "before")
        if iata in _flaky and any(_is_first(f"{iata}.failed.{number}") for number in range(FLAKY_CALLS)):
            note("failed", iata)
            raise ConnectionError("the demo makes this row fail for a while")
        return read_airport(batch_id, row)

    def after_the_body(kwargs: Any = None, **_: Any) -> None:
        _die_under(kwargs["row"]["iata"], "after")

    rows.read_airport = fail_at_first
    signals.task_postrun.connect(after_the_body, weak=False)


def _die_under(iata: str, place: str) -> None:
    if _deadly.get(iata) == place and _is_first(f"{iata}.killed"):
        note("killed", iata)
        os.kill(os.getpid(), signal.SIGKILL)


def _is_first(name: str) -> bool:
    """Whether nobody has asked for this before, in any process."""
    try:
        os.close(os.open(_folder / name, os.O_CREAT | os.O_EXCL))
    except FileExistsError:
        return False
    return True


def _deliver_twice() -> None:
    put = Channel._put

    def put_twice(self: Channel, queue: str, message: Any, **options: Any) -> None:
        put(self, queue, message, **options)
        iata = _iata_of(message)
        if iata in _twice:
            # each delivery has a tag of its own, as on any broker
            properties = {**message["properties"], "delivery_tag": uuid4().hex}
            put(self, queue, {**message, "properties": properties}, **options)
            note("twice", iata)

    Channel._put = put_twice  # type: ignore[method-assign]


def _iata_of(message: Any) -> str:
    """The row that a message of the import is about; empty for any other."""
    if "task" not in message["headers"]:
        return ""
    _args, kwargs, _embed = json.loads(base64.b64decode(message["body"]))
    return str(kwargs["row"]["iata"])


def _end_with(parent: int) -> None:
    """End this node, all of it, once the process that started it is gone."""
    while os.getppid() == parent:
        time.sleep(1)
    os.killpg(0, signal.SIGKILL)


_make_rows_fail()
_deliver_twice()
if os.getppid() == int(os.environ[PARENT]):
    threading.Thread(target=_end_with, args=(os.getppid(),), name="demo-parent", daemon=True).start()
