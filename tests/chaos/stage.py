"""Where a scenario plays: a fleet with its servers, whoever keeps it up, and what is collected when it has come to rest."""

from __future__ import annotations

import os
import random
import signal
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from datetime import datetime, timedelta
from pathlib import Path

from sqlalchemy import text

from celery_guard.errors import StoreError
from celery_guard.job.row import Job
from celery_guard.job.state import ENDED
from celery_guard.operate.demo.nodes import children
from celery_guard.store import open_store
from tests.integration.fleet import Fleet, Worker
from tests.model.trace import read

from .history import History, calls_from, entries_from
from .plan import Plan
from .publish import Publisher
from .stacks import Stack, open_stack

__all__ = ["LEASE", "Stage", "open_stage"]

LEASE = timedelta(seconds=3)

#: The guard's settings beside those of every fleet of tests.
_SETTINGS = {
    "CELERY_GUARD_LEASE": "3s",
    "CELERY_GUARD_RELAY_HOLD": "3s",
    "CELERY_GUARD_RELAY_BATCH": "50",
    "CELERY_GUARD_SUSPECT_AFTER": "2s",
    # nothing is given up because the chaos lasts
    "CELERY_GUARD_MAX_PUBLICATIONS": "30",
    "CELERY_GUARD_DRAIN": "5s",
}

#: How long nothing at all may move before what is there is collected, in seconds.
_PATIENCE = 60.0

_PAGE = 1000


class Stage:
    """Two nodes and what they stand on."""

    def __init__(self, fleet: Fleet, stack: Stack, plan: Plan, draw: random.Random) -> None:
        self.fleet = fleet
        self.stack = stack
        self.plan = plan
        self.draw = draw
        self.publisher = Publisher(plan, fleet.app, joins=stack.store.kind != "redis", returned=lambda: self.returned())
        self.nodes: list[Worker] = []
        #: What the next process is started with, by node.
        self.environment: list[dict[str, str]] = []
        self.log: list[str] = []
        self._began = time.monotonic()
        self._read = 0
        self._returned = 0

    # -- nodes --------------------------------------------------------------------------------------------------------

    def start(self, *environments: dict[str, str]) -> None:
        """Start a node with each of these environments."""
        self.environment = list(environments)
        self.nodes = [self._node(place, ready=False) for place in range(len(environments))]
        for node in self.nodes:
            node.ready()

    def keep_up(self) -> None:
        """Start what has ended again, as any supervisor would."""
        for place, node in enumerate(self.nodes):
            if node.process.poll() is not None:
                node.kill()
                self.say(f"node {place} has ended ({node.process.returncode}), and is started again")
                self.nodes[place] = self._node(place, ready=False)

    def replace(self, place: int) -> None:
        """Start a node in the place of one that is gone."""
        self.nodes[place] = self._node(place, ready=False)

    def _node(self, place: int, *, ready: bool) -> Worker:
        wired = {"APP_BROKER": self.stack.broker.wired, "CELERY_GUARD_STORE": self.stack.store.wired}
        trace = {"APP_TRACE": str(self.fleet.folder / "trace")}
        return self.fleet.worker("prefork", 2, ready=ready, **wired, **trace, **self.environment[place])

    def children(self) -> list[int]:
        """The pool's processes of all nodes."""
        relays = set(self.relays())
        return [pid for node in self.nodes for pid in children(node.process.pid) if pid not in relays]

    def relays(self) -> list[int]:
        """The relays' processes, by the slots that they hold: a relay's token names its process."""
        try:
            beats = self.fleet.store.heartbeats()
        except StoreError:
            return []
        own = {pid for node in self.nodes for pid in children(node.process.pid)}
        held = {int(beat.token.split(":")[1]) for beat in beats if beat.name.startswith("relay:")}
        return sorted(own & held)

    # -- looking ------------------------------------------------------------------------------------------------------

    def say(self, what: str) -> None:
        """Note what happens, for the report."""
        self.log.append(f"{time.monotonic() - self._began:7.2f} s, {self.returned():>6} returned: {what}")

    def returned(self) -> int:
        """How many bodies have returned, by the effect log."""
        with suppress(FileNotFoundError), self.fleet.effects.open("rb") as log:
            log.seek(self._read)
            new = log.read()
            whole = new[: new.rfind(b"\n") + 1]
            self._read += len(whole)
            self._returned += whole.count(b'["return ')
        return self._returned

    def progress(self) -> float:
        """The share of the bodies that have returned."""
        return self.returned() / max(1, self.plan.returns)

    def now(self) -> datetime:
        """The store's clock."""
        self.fleet.store.hold("chaos", "clock", timedelta(seconds=1))
        return next(beat.beat for beat in self.fleet.store.heartbeats() if beat.name == "chaos")

    def rest(self) -> None:
        """Until all have ended and Celery was told; or nothing has moved for long, which the checker will then see."""
        seen: object = None
        moved = time.monotonic()
        while time.monotonic() - moved < _PATIENCE:
            self.keep_up()
            with suppress(StoreError):
                counts = self.fleet.store.counts()
                if not [state for state in counts if state not in ENDED] and all(job.told for job in self._rows()):
                    return
                if (sight := (self.returned(), sorted(counts.items()))) != seen:
                    seen, moved = sight, time.monotonic()
            time.sleep(0.2)
        self.say("nothing moves any more")

    # -- collecting ---------------------------------------------------------------------------------------------------

    def history(self, healed: datetime) -> History:
        """What is left."""
        for node in self.nodes:
            node.kill()
        trace = self.fleet.folder / "trace"
        booked, orders = self._users()
        return History(
            plan=self.plan,
            noted=self.publisher.noted,
            rows={job.id: job for job in self._rows()},
            entries=entries_from(self.fleet.lines()),
            calls=calls_from(read(trace)) if trace.exists() else [],
            booked=Counter(booked),
            orders=orders,
            healed=healed,
            lease=LEASE,
        )

    def _rows(self) -> Iterator[Job]:
        after: str | None = None
        while page := self.fleet.store.jobs(limit=_PAGE, after=after):
            yield from page
            after = page[-1].id

    def _users(self) -> tuple[Sequence[str], Sequence[str]]:
        """What the users' tables have: bookings and orders."""
        if self.stack.store.kind == "redis":
            return (), ()
        with self.fleet.app.shop().connect() as connection:
            booked = connection.execute(text("SELECT job FROM chaos_booking")).scalars().all()
            return booked, connection.execute(text("SELECT name FROM chaos_order")).scalars().all()


@contextmanager
def open_stage(
    broker: str, store: str, folder: Path, plan: Plan, *, private: bool = False, wired: bool = False
) -> Iterator[Stage]:
    """A stage with its servers and the user's tables, and no node yet."""
    with ExitStack() as ending:
        stack = open_stack(broker, store, folder, ending, private=private, wired=wired)
        with_tables = open_store(stack.store.url)
        with_tables.upgrade()
        with_tables.close()
        fleet = Fleet(folder, stack.broker.url, stack.store.url, stack.backend, "tests.chaos.app", **stack.conf)
        fleet.environment.update(_SETTINGS)
        ending.callback(fleet.close)
        if broker == "rabbitmq":
            ending.callback(_drop_queue, fleet)
        if store != "redis":
            fleet.app.tables()
        yield Stage(fleet, stack, plan, random.Random(f"{plan.seed} faults"))


def _drop_queue(fleet: Fleet) -> None:
    for worker in fleet.workers:
        worker.kill()
    with suppress(OSError), fleet.app.app.connection_for_write() as connection:
        connection.default_channel.queue_delete(fleet.queue)


def signalled(pid: int, number: signal.Signals) -> bool:
    """Send a signal; whether there was anybody to get it."""
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return False
    return True
