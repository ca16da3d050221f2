"""The embedded broker: ``files://localhost/a/folder``, kombu's file transport made fit for processes that are killed.

It is for one machine, without a server: a first try, a demo, tests. kombu's own ``filesystem://`` loses more than it has to there,
seen on kombu 5.7 and billiard 4.3:

==========================================  ==================================================================================
``filesystem://``                           here
==========================================  ==================================================================================
a message is readable while it is written   it is written elsewhere and renamed, so it is there whole or not at all
a taken message is gone with its taker      it stays in ``taken`` until it is acknowledged, and comes back when its taker is dead
no event loop: the prefork pool's children  an event loop: each child has a pipe of its own, and its death is its own
share one locked pipe, and one that is
killed while it waits there takes the lock
along; the worker then runs nothing more
every take lists and sorts the folder       a listing is used up before the next
==========================================  ==================================================================================

Nothing is synced to the disk, and a process is told apart by its number only. Like any broker it is trusted with nothing: what gets lost
here, the store sends again. The scheme is known to kombu as soon as an app has a guard.
"""

from __future__ import annotations

import os
import time
import uuid
from collections import deque
from contextlib import suppress
from pathlib import Path
from queue import Empty
from typing import Any

from kombu.transport import TRANSPORT_ALIASES, filesystem, virtual
from kombu.utils.json import dumps, loads

from celery_guard.lazy import lazy

__all__ = ["Channel", "QoS", "Transport", "register"]

#: How long nobody may have looked for messages of dead takers (seconds).
_LOOK_EVERY = 1.0

#: Messages handed to a worker in one turn of its event loop.
_TURN = 100


class QoS(virtual.QoS):  # type: ignore[misc]
    """Messages that were taken and not acknowledged. What is done with one is also done with its file."""

    def ack(self, delivery_tag: str) -> None:
        super().ack(delivery_tag)
        self.channel.drop(delivery_tag)

    def reject(self, delivery_tag: str, requeue: bool = False) -> None:
        super().reject(delivery_tag, requeue=requeue)
        self.channel.drop(delivery_tag)


class Channel(filesystem.Channel):  # type: ignore[misc]
    """A channel on one folder: ``new`` (being written), ``queue`` (waiting), ``taken`` and ``control`` (exchanges) in it."""

    QoS = QoS

    def __init__(self, connection: Any, **kwargs: Any) -> None:
        super().__init__(connection, **kwargs)
        self._listed: dict[str, deque[str]] = {}
        self._taken: dict[str, Path] = {}
        self._unacknowledged: set[str] = set()
        self._looked = 0.0

    @lazy
    def folder(self) -> Path:
        """The broker's folder, from the URL; made if it is not there."""
        folder = Path("/", self.connection.client.virtual_host)
        for name in ("new", "queue", "taken", "control"):
            (folder / name).mkdir(parents=True, exist_ok=True)
        return folder

    @property
    def data_folder_in(self) -> str:
        return str(self.folder / "queue")

    data_folder_out = data_folder_in

    @property
    def control_folder(self) -> Path:
        return self.folder / "control"

    def basic_consume(self, queue: str, no_ack: bool, *args: Any, **kwargs: Any) -> Any:
        if no_ack:
            self._unacknowledged.add(queue)
        return super().basic_consume(queue, no_ack, *args, **kwargs)

    def drop(self, delivery_tag: str) -> None:
        """The message needs no keeping any more."""
        path = self._taken.pop(delivery_tag, None)
        if path is not None:
            path.unlink(missing_ok=True)

    def _put(self, queue: str, message: Any, **_: Any) -> None:
        name = f"{time.time_ns():020}_{uuid.uuid4().hex}.{queue}.msg"
        path = self.folder / "new" / name
        path.write_text(dumps(message))
        path.rename(self.folder / "queue" / name)

    def _get(self, queue: str) -> Any:
        for name in self._waiting(queue):
            path = self.folder / "taken" / f"{os.getpid()}.{name}"
            try:
                (self.folder / "queue" / name).rename(path)
            except FileNotFoundError:
                continue  # somebody else was faster
            message = loads(path.read_text())
            if queue in self._unacknowledged:
                path.unlink()
            else:
                self._taken[message["properties"]["delivery_tag"]] = path
            return message
        raise Empty

    def _waiting(self, queue: str) -> Any:
        """Names of waiting messages, oldest first, from the last listing while it lasts."""
        listed = self._listed.setdefault(queue, deque())
        while listed:
            yield listed.popleft()
        self._bring_back()
        suffix = f"{queue}.msg"
        names = (entry.name for entry in os.scandir(self.folder / "queue"))
        listed.extend(sorted(name for name in names if name.partition(".")[2] == suffix))
        while listed:
            yield listed.popleft()

    def _restore(self, message: Any) -> None:
        """Give back what was taken; to the end of the queue, so that a message that nobody can use does not hold up the rest."""
        path = self._taken.pop(message.delivery_tag, None)
        if path is None:
            super()._restore(message)
            return
        queue = path.name.split(".", 2)[2]
        path.rename(self.folder / "queue" / f"{time.time_ns():020}_{uuid.uuid4().hex}.{queue}")

    def _bring_back(self) -> None:
        """Put messages whose taker is dead back where they were."""
        now = time.monotonic()
        if now - self._looked < _LOOK_EVERY:
            return
        self._looked = now
        alive: dict[str, bool] = {}
        for entry in os.scandir(self.folder / "taken"):
            pid, _, name = entry.name.partition(".")
            if pid not in alive:
                alive[pid] = _is_alive(int(pid))
            if not alive[pid]:
                with suppress(FileNotFoundError):  # somebody else has seen it too
                    os.rename(entry.path, self.folder / "queue" / name)

    def _queue_bind(self, exchange: str, *meta: Any) -> None:
        """Two workers that start together would make the exchange's file at the same time, and one read the other's empty one."""
        path = self.control_folder / f"{exchange}.exchange"
        if not path.exists():
            made = self.folder / "new" / f"{uuid.uuid4().hex}.exchange"
            made.write_text("[]")
            with suppress(FileExistsError):  # somebody else was faster
                os.link(made, path)
            made.unlink()
        super()._queue_bind(exchange, *meta)


class Transport(filesystem.Transport):  # type: ignore[misc]
    """Looks for messages every :attr:`polling_interval` seconds, in the worker's event loop where there is one."""

    Channel = Channel
    implements = filesystem.Transport.implements.extend(asynchronous=True)
    driver_type = "files"
    driver_name = "files"
    polling_interval = 0.02

    def __init__(self, client: Any, **kwargs: Any) -> None:
        super().__init__(client, **kwargs)
        # kombu's knows one folder a process
        self.state = virtual.BrokerState()

    def register_with_event_loop(self, connection: Any, loop: Any) -> None:
        """Called by the worker: deliver in each turn of ``loop``, and let no turn last longer than the polling interval."""
        loop.on_tick.add(self._turn)
        loop.call_repeatedly(self.polling_interval, lambda: None)

    def _turn(self) -> None:
        try:
            for _ in range(_TURN):
                self.cycle.get(self._deliver)
        except Empty:
            return


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def register() -> None:
    """Make the scheme known to kombu. Done for every app that has a guard."""
    TRANSPORT_ALIASES.setdefault("files", f"{__name__}:Transport")
