"""One long run in which everything goes wrong in turn: ``python -m tests.chaos.soak``, or ``tox -e soak``.

Says what happens, writes the result as JSON, and ends with 1 if the history checker has found anything. Needs Redis and PostgreSQL.
On two cores a thousand jobs take about half a minute, so that 100,000 are done within the hour: they are bound by what each job costs, not by the faults.
The last result is kept in ``soak.json`` beside this file, and stands in the guarantee ledger as :func:`row` says it.
"""

from __future__ import annotations

import argparse
import json
import platform
import random
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from datetime import datetime, timezone
from importlib.metadata import version
from pathlib import Path
from typing import Any

from .faults import (
    Fault,
    cold_shutdown,
    cut_broker,
    cut_store,
    flush_broker,
    kill_child,
    kill_node,
    kill_publisher,
    kill_relay,
    lose_messages,
    pause_node,
    restart_broker,
    restart_store,
    silence_broker,
    silence_store,
    trouble_messages,
    warm_shutdown,
)
from .scenarios import Report, Scenario, new_seed, play

__all__ = ["LAST", "main", "mixed", "row"]

#: The result that the ledger shows.
LAST = Path(__file__).with_name("soak.json")

#: How often each is drawn.
_WEIGHTS: dict[Fault, int] = {
    kill_child: 8, kill_node: 4, kill_publisher: 4, kill_relay: 4, pause_node: 2, warm_shutdown: 2, cold_shutdown: 2, restart_broker: 1,
    restart_store: 1, flush_broker: 2, trouble_messages: 4, lose_messages: 2, cut_store: 1, cut_broker: 1, silence_store: 1,
    silence_broker: 1,
}  # fmt: skip

#: One fault for so many jobs.
_EVERY = 400


def mixed(jobs: int, seed: int) -> Scenario:
    """Every fault that Redis and PostgreSQL can have, in an order that the seed draws."""
    draw = random.Random(f"{seed} soak")
    count = max(len(_WEIGHTS), jobs // _EVERY)
    faults = [*_WEIGHTS, *draw.choices([*_WEIGHTS], [*_WEIGHTS.values()], k=count - len(_WEIGHTS))]
    draw.shuffle(faults)
    return Scenario("redis", "postgresql", tuple(faults), private=True, wired=True, relay=True)


def result(report: Report, scenario: Scenario, jobs: int, seconds: float) -> dict[str, Any]:
    """What is kept of a run."""
    return {
        "date": datetime.now(timezone.utc).date().isoformat(),
        "seed": report.seed,
        "jobs": jobs,
        "broker": scenario.broker,
        "store": scenario.store,
        "faults": dict(sorted(Counter(fault.__name__ for fault in scenario.faults).items())),
        "measured": report.measured,
        "problems": report.problems,
        "seconds": round(seconds),
        "versions": {
            "python": platform.python_version(),
            **{name: version(name) for name in ("celery", "kombu", "sqlalchemy", "psycopg", "redis")},
        },
    }


def row(kept: dict[str, Any]) -> str:
    """A result as the ledger has it."""
    found, faults = sum(map(len, kept["problems"].values())), sum(kept["faults"].values())
    measured = kept["measured"]
    return (
        f"| {kept['date']} | {kept['seed']} | {kept['jobs']:,} | {faults}, of {len(kept['faults'])} kinds | {kept['broker']}, {kept['store']} | "
        f"{measured['attempts']:,} attempts, {measured['crashes']} crashes | {measured['longest wait (leases)']} leases | {found} |"
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Run, report; 1 if anything is not as it was promised."""
    parser = argparse.ArgumentParser(prog="python -m tests.chaos.soak", description=__doc__)
    parser.add_argument("--jobs", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=None, help="to replay a run")
    parser.add_argument("--json", type=Path, default=LAST, help="where the result is written")
    options = parser.parse_args(arguments)
    seed = new_seed() if options.seed is None else options.seed
    print(f"seed {seed}", flush=True)
    scenario = mixed(options.jobs, seed)
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="guard-soak-") as parent:
        folder = Path(parent) / f"fleet-soak-{seed}"
        folder.mkdir()
        report = play("soak", scenario, folder, seed, options.jobs)
    options.json.write_text(
        json.dumps(result(report, scenario, options.jobs, time.monotonic() - began), indent=1) + "\n"
    )
    print(report)
    return 1 if report.problems else 0


if __name__ == "__main__":
    sys.exit(main())
