"""``python -m benchmarks``: measure, and write the report."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Collection
from pathlib import Path
from typing import Any

import click

from . import docs
from .figures import FIGURES
from .lab import Lab
from .options import SMOKE, Options
from .report import machine

_NAMES = [figure.name for figure in FIGURES]


@click.command()
@click.option("--only", multiple=True, type=click.Choice(_NAMES), help="Only these figures.")
@click.option("--rounds", default=5, show_default=True, help="Rounds of each figure: plain and guarded, in turn.")
@click.option("--jobs", default=5_000, show_default=True, help="Jobs of a round on each side.")
@click.option("--finished", default=5_000_000, show_default=True, help="Finished jobs in the full table.")
@click.option("--memory-jobs", default=50_000, show_default=True, help="Jobs over which memory is watched.")
@click.option(
    "--json",
    "to",
    type=click.Path(path_type=Path),
    default=docs.REPORT,
    help="Where the report goes; figures that it has already are replaced.  [default: benchmarks/report.json]",
)
@click.option("--write-docs", is_flag=True, help="Write the tables of docs/explanation/performance.md, and its plot.")
@click.option("--measure/--no-measure", default=True, help="Measure; otherwise only write the documentation again.")
@click.option("--floors/--no-floors", default=True, help="Fail when a figure does not hold its floor.")
@click.option("--smoke", is_flag=True, help="A few jobs, one round: shows that everything runs, and nothing else.")
def main(
    only: tuple[str, ...], rounds: int, jobs: int, finished: int, memory_jobs: int, to: Path, write_docs: bool,
    measure: bool, floors: bool, smoke: bool,
) -> None:  # fmt: skip
    """Measure what the guard costs, as ratios against plain Celery."""
    options = SMOKE if smoke else Options(rounds, jobs, finished=finished, memory_jobs=memory_jobs)
    missed = _measured(only or _NAMES, options, to) if measure else []
    if write_docs:
        docs.write()
    if missed and floors:
        raise SystemExit(f"missed: {', '.join(missed)}")


def _measured(names: Collection[str], options: Options, to: Path) -> list[str]:
    """Measure these figures, and write each into the report as soon as it is there; those that missed their floor."""
    missed = []
    report: dict[str, Any] = json.loads(to.read_text()) if to.exists() else {"figures": {}}
    with Lab() as lab:
        report["machine"] = machine(lab)
        for figure in FIGURES:
            if figure.name not in names:
                continue
            print(f"{figure.name}: {figure.what}", file=sys.stderr)
            load = os.getloadavg()[0]
            found = figure.measure(lab, options)
            report["figures"][figure.name] = {**found, "load": round(load, 1), "at": report["machine"]["at"]}
            to.write_text(json.dumps(report, indent=1) + "\n")
            holds = figure.holds(found["ratio"])
            if not holds:
                missed.append(figure.name)
            cpu = f", CPU {found['cpu_ratio']:.2f}" if "cpu_ratio" in found else ""
            bound = f" (floor: {figure.bound}{'' if holds else ', MISSED'})" if figure.bound else ""
            print(f"{figure.name}: {found['ratio']:.2f}{cpu}{bound}", flush=True)
    return missed


if __name__ == "__main__":
    main()
