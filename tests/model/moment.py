"""One moment of the model: where every process is and what it has in memory, the row, the messages, and what an onlooker knows."""

from __future__ import annotations

from typing import NamedTuple

from .rules import End, Row, Seen

__all__ = [
    "RETRY",
    "Known",
    "Limits",
    "Relay",
    "State",
    "Sweep",
    "Worker",
    "canonical",
    "too_late",
    "unused",
    "with_worker",
]

RETRY = End("pending", "retry")


class Worker(NamedTuple):
    """Where a worker is: idle, claim (again), speak, run, settle (again), tell, note; and what it has in memory."""

    at: str = "idle"
    owner: int = 0
    fence: int = 0
    attempt: int = 0
    #: Attempts that came to an end of their own, as the claim said.
    made: int = 0
    cancel: bool = False
    how: End | None = None
    #: An earlier try of this call may have been written.
    again: bool = False
    #: Still within the time that a teller has.
    in_time: bool = True


class Relay(NamedTuple):
    at: str = "idle"
    token: int = 0


class Sweep(NamedTuple):
    saw: Seen | None = None
    how: End | None = None


class Known(NamedTuple):
    """What the onlooker knows."""

    #: Attempts whose lease is live by the store's clock.
    live: frozenset[tuple[int, int]] = frozenset()
    #: The attempt that was granted last, and whether it has settled.
    latest: tuple[int, int] = (0, 0)
    settled: bool = False
    #: The time of the present wait has come at least once.
    ripe: bool = True
    succeeded: bool = False
    #: The present end was told to Celery.
    heard: bool = False


class State(NamedTuple):
    row: Row = Row()
    mail: int = 0
    workers: tuple[Worker, ...] = (Worker(), Worker())
    relays: tuple[Relay, ...] = (Relay(),)
    sweep: Sweep = Sweep()
    known: Known = Known()
    faults: int = 0
    cancels: int = 0
    replays: int = 0


class Limits(NamedTuple):
    """How much of the world is looked at."""

    workers: int = 2
    relays: int = 1
    mail: int = 2
    faults: int = 2
    cancels: int = 1
    replays: int = 1
    #: The bounds of the job's contract, and of the settings.
    attempts: int = 2
    crashes: int = 2
    publications: int = 2

    def start(self) -> State:
        """A job that was accepted just now."""
        return State(
            workers=(Worker(),) * self.workers, relays=(Relay(),) * self.relays, faults=self.faults,
            cancels=self.cancels, replays=self.replays,
        )  # fmt: skip


def too_late(workers: tuple[Worker, ...]) -> tuple[Worker, ...]:
    """Whoever tells now, or will find that it is to tell, has used up its time."""
    return tuple(
        worker._replace(in_time=False) if worker.at in ("tell", "note") or worker.again else worker
        for worker in workers
    )


def with_worker(now: State, before: Worker, after: Worker) -> State:
    workers = [*now.workers]
    workers[workers.index(before)] = after
    return now._replace(workers=tuple(sorted(workers, key=_order)))


def _order(worker: Worker) -> tuple[object, ...]:
    return (
        worker.at,
        worker.fence,
        worker.attempt,
        worker.cancel,
        worker.again,
        worker.in_time,
        str(worker.how),
        worker.owner,
    )


def canonical(now: State) -> State:
    """The same state with marks renamed in the order in which they are met: who is who does not matter, only who is the same."""
    row, sweep, known = now.row, now.sweep, now.known
    names: dict[object, int] = {None: 0, 0: 0}
    order = [row.owner, row.relay, known.latest[1], *(worker.owner for worker in now.workers)]
    order += [relay.token for relay in now.relays]
    if sweep.saw is not None:
        order.append(sweep.saw.owner)
    order += sorted(owner for _, owner in known.live)
    for mark in order:
        names.setdefault(mark, len(names) - 1)
    if all(mark == name for mark, name in names.items() if mark):
        return now
    saw = sweep.saw and sweep.saw._replace(owner=names[sweep.saw.owner] or None)
    return now._replace(
        row=row._replace(owner=names[row.owner] or None, relay=names[row.relay] or None),
        workers=tuple(worker._replace(owner=names[worker.owner]) for worker in now.workers),
        relays=tuple(relay._replace(token=names[relay.token]) for relay in now.relays),
        sweep=sweep._replace(saw=saw),
        known=known._replace(
            latest=(known.latest[0], names[known.latest[1]]),
            live=frozenset((fence, names[owner]) for fence, owner in known.live),
        ),
    )  # fmt: skip


def unused(now: State) -> int:
    """A mark that nobody has, for an owner or a relay."""
    used = {now.row.owner, now.row.relay, now.known.latest[1]}
    used.update(worker.owner for worker in now.workers)
    used.update(relay.token for relay in now.relays)
    used.update(owner for _, owner in now.known.live)
    if now.sweep.saw is not None:
        used.add(now.sweep.saw.owner)
    return next(mark for mark in range(1, 99) if mark not in used)
