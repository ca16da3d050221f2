"""The same work under the same faults, five times: ``python -m tests.chaos.compare``. Prints the table that ``docs/explanation/why.md`` shows.

Needs Redis, PostgreSQL, and the packages celery-once and celery-singleton (``tox -e chaos-compare`` brings them).
"""

from __future__ import annotations

import argparse
import json
import random
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from kombu.exceptions import OperationalError
from redis.exceptions import RedisError
from sqlalchemy import text

from celery_guard.errors import KeyConflict, StoreError

from .faults import (
    Fault,
    cold_shutdown,
    kill_child,
    kill_node,
    lose_messages,
    pause_node,
    restart_broker,
    trouble_messages,
)
from .scenarios import break_things, new_seed
from .stage import Stage, open_stage

__all__ = ["SYSTEMS", "Column", "column", "main"]

SYSTEMS = ("Celery, early acks", "Celery, late acks", "celery-once", "celery-singleton", "celery-guard")

FAULTS: tuple[Fault, ...] = (
    kill_child, kill_node, trouble_messages, kill_child, cold_shutdown, restart_broker, kill_child, lose_messages, pause_node,
    kill_node,
)  # fmt: skip

#: The same with a broker that keeps each message as it was given.
KINDER = tuple(fault for fault in FAULTS if fault not in (trouble_messages, lose_messages))

#: After so long without any effect (seconds) it is over: longer than the broker waits before it delivers again.
_QUIET = 30.0


@dataclass
class Column:
    """What became of the work in one system."""

    system: str
    accepted: int = 0
    #: Accepted, and its effect never came.
    lost: int = 0
    #: Effects beyond the first.
    doubled: int = 0
    #: Of transactions that were rolled back, and ran.
    ran_though_rolled_back: int = 0
    #: Chords of which all members ran, and the body did not; and lost calls that cannot be made again.
    stuck: int = 0
    #: Celery says that it failed, and its effect is there.
    false_failures: int = 0
    #: Calls that raised: the caller knows.
    refused: int = 0
    faults: Sequence[str] = field(default=(), repr=False)


class _Shop(threading.Thread):
    """Sells, and notes what it was told."""

    def __init__(self, stage: Stage, size: int, seed: int) -> None:
        super().__init__(name="shop", daemon=True)
        self._stage = stage
        self._m = stage.fleet.app
        self._size = size
        self._draw = random.Random(f"{seed} compare")
        self._again: list[tuple[int, int]] = []
        self.accepted: set[str] = set()
        self.rolled_back: set[str] = set()
        self.handles: dict[str, Any] = {}
        self.refused = 0

    def run(self) -> None:
        for number in range(self._size):
            while number - self._stage.returned() > 150 and self._draw.random() > 0.02:
                time.sleep(0.05)
            self._sell(number)
            for turn in [turn for turn in self._again if turn[0] <= number]:
                self._again.remove(turn)
                # somebody clicks twice
                self.call(f"charge {turn[1]}", lambda n=turn[1]: self._m.charge.delay(number=n), again=True)

    def _sell(self, number: int) -> None:
        kind = number % 10
        if kind == 3:
            self._roll_back(number)
        elif kind == 7:
            self._chord(number)
        else:
            self.call(f"charge {number}", lambda: self._m.charge.delay(number=number))
            if kind == 1:
                self._again.append((number + self._draw.randint(1, 15), number))

    def call(self, what: str, send: Any, *, again: bool = False) -> bool:
        try:
            handle = send()
        except (OperationalError, RedisError, StoreError, KeyConflict):
            self.refused += not again
            return False
        if not again:
            self.accepted.add(what)
            self.handles[what] = handle
        return True

    def _roll_back(self, number: int) -> None:
        """An order whose transaction fails after the call."""
        self.rolled_back.add(f"charge {number}")
        connection = self._m.shop().connect()
        with connection, connection.begin() as transaction:
            charge = self._m.charge.using(connection) if self._m.is_guarded else self._m.charge
            self.call(f"rolled back {number}", lambda: charge.delay(number=number), again=True)
            transaction.rollback()

    def _chord(self, number: int) -> None:
        m = self._m
        canvas = m.chord([m.part.s(number * 10 + member) for member in range(3)], m.total.s(number))

        def send() -> Any:
            if not m.is_guarded:
                return canvas.delay()
            with m.shop().begin() as connection, m.guard.using(connection):
                return canvas.delay()

        if self.call(f"total {number}", send):
            self.accepted |= {f"part {number * 10 + member}" for member in range(3)}


def column(system: str, folder: Path, seed: int, size: int, faults: Sequence[Fault] = FAULTS) -> Column:
    """Do the work in one system, under the faults, and count."""
    folder.mkdir()
    returns = round(size * (0.8 + 0.1 * 4))
    with open_stage(
        "redis", "postgresql", folder, seed, returns, module="tests.chaos.compare_app", APP_SYSTEM=system
    ) as stage:
        stage.fleet.configure(
            broker_transport_options={"visibility_timeout": 10, "unacked_restore_interval": 5}, task_publish_retry=False
        )
        shop = _Shop(stage, size, seed)
        stage.start({}, {}, relay=system == "celery-guard")
        shop.start()
        break_things(stage, faults, shop.is_alive)
        shop.join()
        _until_quiet(stage)
        return _count(system, stage, shop)


def _until_quiet(stage: Stage) -> None:
    seen, moved = -1, time.monotonic()
    while time.monotonic() - moved < _QUIET:
        stage.keep_up()
        if stage.returned() != seen:
            seen, moved = stage.returned(), time.monotonic()
        time.sleep(0.2)


def _effects(stage: Stage) -> Counter[str]:
    with stage.fleet.app.shop().connect() as connection:
        return Counter(connection.execute(text("SELECT job FROM chaos_booking")).scalars())


def _count(system: str, stage: Stage, shop: _Shop) -> Column:
    done = _effects(stage)
    lost = shop.accepted - done.keys()
    totals = {what for what in lost if what.startswith("total")}
    stuck = {what for what in totals if all(done[f"part {what.split()[1]}{member}"] for member in range(3))}
    failed = {what for what, handle in shop.handles.items() if done[what] and getattr(handle, "state", "") == "FAILURE"}
    # what a person would do about a call that was lost: make it again
    for what in sorted(lost - totals):
        word, number = what.split()
        shop.call(what, lambda n=int(number), word=word: getattr(stage.fleet.app, word).delay(number=n), again=True)
    _until_quiet(stage)
    still = {what for what in lost - totals if not _effects(stage)[what]}
    return Column(
        system=system, accepted=len(shop.accepted), lost=len(lost),
        doubled=sum(times - 1 for what, times in done.items() if times > 1),
        ran_though_rolled_back=sum(done[what] > 0 for what in shop.rolled_back), stuck=len(stuck | still),
        false_failures=len(failed), refused=shop.refused, faults=stage.log,
    )  # fmt: skip


_ROWS = {
    "accepted calls": "accepted",
    "calls that raised": "refused",
    "lost: accepted, and never done": "lost",
    "doubled: done more than once": "doubled",
    "done though rolled back": "ran_though_rolled_back",
    "stuck: a chord without its body, or a call that cannot be made again": "stuck",
    "false failures: done, and Celery says FAILURE": "false_failures",
}


def table(columns: Sequence[Column]) -> str:
    """The table, in Markdown."""
    lines = ["| | " + " | ".join(column.system for column in columns) + " |", "|---" * (len(columns) + 1) + "|"]
    lines += [
        f"| {label} | " + " | ".join(str(getattr(column, name)) for column in columns) + " |"
        for label, name in _ROWS.items()
    ]
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.chaos.compare", description=__doc__)
    parser.add_argument("--size", type=int, default=500, help="calls of each system")
    parser.add_argument("--seed", type=int, default=None)
    parser.add_argument(
        "--keep-messages", action="store_true", help="without the faults that drop, double and reorder messages"
    )
    parser.add_argument("--json", type=Path, help="write all numbers to this file")
    parser.add_argument("systems", nargs="*", help="only these", default=SYSTEMS)
    options = parser.parse_args(arguments)
    seed = new_seed() if options.seed is None else options.seed
    faults = KINDER if options.keep_messages else FAULTS
    columns = []
    with tempfile.TemporaryDirectory(prefix="guard-compare-") as folder:
        for number, system in enumerate(options.systems):
            columns.append(column(system, Path(folder) / f"fleet-{seed}-{number}", seed, options.size, faults))
            print(columns[-1], flush=True)
    if options.json:
        options.json.write_text(
            json.dumps({"seed": seed, "size": options.size, "columns": list(map(asdict, columns))}, indent=1)
        )
    print(f"\n{options.size} calls each, seed {seed}\n\n{table(columns)}")


if __name__ == "__main__":
    main()
