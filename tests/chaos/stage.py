"""Where a scenario plays: a fleet with its servers, whoever keeps it up, and what is collected when it has come to rest."""

from __future__ import annotations

import os
import random
import signal
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from datetime import timedelta
from pathlib import Path

from sqlalchemy import text

from celery_guard.errors import StoreError
from celery_guard.job.row import Job
from celery_guard.job.state import ENDED
from celery_guard.operate.demo.nodes import children
from celery_guard.store import open_store
from tests.integration.fleet import Fleet, Process, Worker
from tests.model.trace import lines_of

from .effects import Effects
from .history import History, calls_from, entries_from
from .publisher import Publisher
from .stacks import Stack, open_stack, small_disk
from .turns import Moment, turns_in

__all__ = ["LEASE", "Stage", "open_stage"]

LEASE = timedelta(seconds=3)
_POLL = timedelta(seconds=0.2)

#: The guard's settings beside those of every fleet of tests.
_SETTINGS = {
    "CELERY_GUARD_LEASE": "3s",
    "CELERY_GUARD_POLL": "200ms",
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

    def __init__(self, fleet: Fleet, stack: Stack, returns: int, draw: random.Random) -> None:
        self.fleet = fleet
        self.stack = stack
        #: How many bodies are to return.
        self.returns = returns
        self.draw = draw
        self.nodes: list[Worker] = []
        #: What the next process is started with, by node.
        self.environment: list[dict[str, str]] = []
        #: A relay beside the nodes, which then have none; None where nodes relay.
        self.relay: Process | None = None
        #: Those that were told to end.
        self.leaving: list[Worker] = []
        #: The small file system that the database is on, if it is on one.
        self.disk: Path | None = None
        self.log: list[str] = []
        #: Who publishes, where it is a process that may be killed.
        self.publisher: Publisher | None = None
        self._began = time.monotonic()
        self._effects = Effects(fleet.effects)

    # -- nodes --------------------------------------------------------------------------------------------------------

    def start(self, *environments: dict[str, str], relay: bool) -> None:
        """Start a node with each of these environments; with ``relay``, a relay beside them, and none in them."""
        self.environment = [{**each, **({"CELERY_GUARD_RELAY": "false"} if relay else {})} for each in environments]
        self.relay = self._relay() if relay else None
        self.nodes = [self._node(place, ready=False) for place in range(len(environments))]
        for node in self.nodes:
            node.ready()

    def keep_up(self) -> None:
        """Start what has ended again, as any supervisor would."""
        self.leaving = [node for node in self.leaving if node.process.poll() is None]
        for place, node in enumerate(self.nodes):
            if node.process.poll() is not None:
                node.kill()
                self.say(f"node {place} has ended ({node.process.returncode}), and is started again")
                self.nodes[place] = self._node(place, ready=False)

        if self.relay is not None and self.relay.process.poll() is not None:
            self.relay.kill()
            self.say("the relay has ended, and is started again")
            self.relay = self._relay()

    def replace(self, place: int) -> None:
        """Start a node in the place of one that is gone."""
        self.nodes[place] = self._node(place, ready=False)

    def _node(self, place: int, *, ready: bool) -> Worker:
        return self.fleet.worker("prefork", 2, ready=ready, **self._wired(), **self.environment[place])

    def _relay(self) -> Process:
        return self.fleet.relay(**self._wired())

    def _wired(self) -> dict[str, str]:
        """What nodes and relays are told: where they find broker and store, and where to write down what they ask."""
        return {
            "APP_BROKER": self.stack.broker.wired, "CELERY_GUARD_STORE": self.stack.store.wired,
            "APP_TRACE": str(self.fleet.folder / "trace"),
        }  # fmt: skip

    def children(self) -> list[int]:
        """The pool's processes of all nodes."""
        relays = set(self.relays())
        return [pid for node in self.nodes for pid in children(node.process.pid) if pid not in relays]

    def relays(self) -> list[int]:
        """The relays' processes, by the slots that they hold: a relay's token names its process."""
        if self.relay is not None:
            return [self.relay.process.pid]
        try:
            beats = self.fleet.store.heartbeats()
        except StoreError:
            return []
        own = {pid for node in self.nodes for pid in children(node.process.pid)}
        held = {int(beat.token.split(":")[1]) for beat in beats if beat.name.startswith("relay:")}
        return sorted(own & held)

    # -- looking ------------------------------------------------------------------------------------------------------

    def say(self, what: str) -> None:
        """Note what happens, for the report and for who looks on."""
        self.log.append(f"{time.monotonic() - self._began:7.2f} s, {self.returned():>6} returned: {what}")
        print(" ", self.log[-1], flush=True)

    def returned(self) -> int:
        """How many bodies have returned, by the effect log."""
        return self._effects.returned()

    def progress(self) -> float:
        """The share of the bodies that have returned."""
        return self.returned() / max(1, self.returns)

    def now(self) -> Moment:
        """The store's clock, and the machine's."""
        self.fleet.store.hold("chaos", "clock", timedelta(seconds=1))
        machine = time.monotonic()
        return Moment(next(beat.beat for beat in self.fleet.store.heartbeats() if beat.name == "chaos"), machine)

    def rest(self) -> None:
        """Until all have ended and Celery was told; or nothing has moved for long, which the checker will then see."""
        seen: object = None
        moved = time.monotonic()
        while time.monotonic() - moved < _PATIENCE:
            self.keep_up()
            with suppress(StoreError):
                counts = self.fleet.store.counts()
                ended = not [state for state in counts if state not in ENDED]
                if ended and not self.leaving and all(job.told for job in self._rows()):
                    return
                if (sight := (self.returned(), sorted(counts.items()))) != seen:
                    seen, moved = sight, time.monotonic()
            time.sleep(0.2)
        self.say(f"nothing moves any more, and {len(self.leaving)} nodes that were told to end have not")

    # -- collecting ---------------------------------------------------------------------------------------------------

    def history(self, healed: Moment) -> History:
        """What is left."""
        assert self.publisher is not None
        looked, living = self.now(), [node.process.pid for node in self.nodes]
        for process in self.fleet.workers:
            process.kill()
        trace = self.fleet.folder / "trace"
        booked, orders = self._users()
        return History(
            plan=self.publisher.plan,
            noted=self.publisher.noted(),
            sights=self.publisher.sights,
            rows={job.id: job for job in self._rows()},
            entries=entries_from(self.fleet.lines()),
            calls=calls_from(lines_of(trace)) if trace.exists() else [],
            booked=Counter(booked),
            orders=orders,
            healed=healed.store,
            looked=looked.store,
            lease=LEASE,
            turns=turns_in(self.fleet.folder / "turns", healed, living),
            poll=_POLL,
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
    broker: str,
    store: str,
    folder: Path,
    seed: int,
    returns: int,
    *,
    private: bool = False,
    wired: bool = False,
    small: bool = False,
    module: str = "tests.chaos.app",
    **environment: str,
) -> Iterator[Stage]:
    """A stage with its servers and the user's tables, and no node yet; with ``small``, SQLite is on a small disk."""
    with ExitStack() as ending:
        disk = ending.enter_context(small_disk(folder / "disk")) if small else None
        stack = open_stack(broker, store, folder, ending, private=private, wired=wired)
        with_tables = open_store(stack.store.url)
        with_tables.upgrade()
        with_tables.close()
        fleet = Fleet(folder, stack.broker.url, stack.store.url, stack.backend, module, **stack.conf)
        fleet.environment.update(_SETTINGS)
        fleet.environment.update(environment)
        ending.callback(fleet.close)
        if broker == "rabbitmq":
            ending.callback(_drop_queue, fleet)
        if store != "redis":
            fleet.app.tables()
        stage = Stage(fleet, stack, returns, random.Random(f"{seed} faults"))
        stage.disk = disk
        yield stage


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
