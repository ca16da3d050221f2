"""The faults, loaded into the workers (``--include``) and the loader of an import. The example is not changed for them.

* A flaky row's body raises ``ConnectionError`` the first times it is called, whoever calls it.
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

from celery_guard.integrations.celery.files import Channel

from .plan import FOLDER, PARENT

__all__ = ["FLAKY_CALLS", "note"]

#: So many calls of a flaky row fail.
FLAKY_CALLS = 2

_folder = Path(os.environ[FOLDER])
_plan = json.loads((_folder / "faults.json").read_text())
_flaky, _twice = frozenset(_plan["flaky"]), frozenset(_plan["twice"])


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
        if row["iata"] in _flaky and _fails_once_more(row["iata"]):
            note("failed", row["iata"])
            raise ConnectionError("the demo makes this row fail for a while")
        return read_airport(batch_id, row)

    rows.read_airport = fail_at_first


def _fails_once_more(iata: str) -> bool:
    for number in range(FLAKY_CALLS):
        try:
            os.close(os.open(_folder / f"{iata}.{number}.failed", os.O_CREAT | os.O_EXCL))
        except FileExistsError:
            continue
        return True
    return False


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
