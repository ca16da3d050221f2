"""A broker that does as it is told, a store that keeps what it was asked, and a relay between them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from celery_guard.contract.contract import Effective
from celery_guard.flow.relay import Published, Relay
from celery_guard.flow.sweep import Sweep
from celery_guard.job.row import Outgoing
from celery_guard.settings import read_settings
from celery_guard.store.protocol import Store

__all__ = ["Broker", "Watched", "relay_on"]


class Broker:
    """Takes what it is given, unless the test says otherwise."""

    def __init__(self) -> None:
        self.taken: list[str] = []
        self.told: list[str] = []
        self.refuses: dict[str, Exception] = {}
        self.out: Exception | None = None
        self.depths: dict[str, int | None] = {}

    def publish(self, rows: Sequence[Outgoing]) -> Published:
        if self.out is not None:
            return Published(outage=self.out)
        refused = tuple((row.id, self.refuses[row.id]) for row in rows if row.id in self.refuses)
        sent = tuple(row.id for row in rows if row.id not in self.refuses)
        self.taken += sent
        return Published(sent, refused)

    def depth(self, queue: str) -> int | None:
        if self.out is not None:
            raise ConnectionError(str(self.out))
        return self.depths.get(queue, 0)

    def tell(self, row: Outgoing, error: Exception) -> bool:
        self.told.append(row.id)
        return True


class Watched:
    """A store, and the names of its methods in the order of their calls; ``after`` is called behind each."""

    def __init__(self, store: Store, after: Callable[[str], None] = lambda name: None) -> None:
        self._store = store
        self._after = after
        self.calls: list[str] = []

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._store, name)

        def call(*args: Any, **kwargs: Any) -> Any:
            self.calls.append(name)
            try:
                return method(*args, **kwargs)
            finally:
                self._after(name)

        return call


def relay_on(store: Any, broker: Broker, **settings: Any) -> Relay:
    read = read_settings({"store": "sqlite://", "poll": 0.01, "sweep_every": 3600, **settings}, {}, {})
    sweep = Sweep(store, broker, read, lambda task: Effective(task=task), lambda task: True, "relay-1")
    return Relay(store, broker, sweep, read, "relay-1")
