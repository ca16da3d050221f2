"""``python -m benchmarks``: measure, and write the report."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import click

from .figures import FIGURES
from .lab import Lab
from .options import SMOKE, Options
from .report import machine


@click.command()
@click.option(
    "--only", multiple=True, type=click.Choice([figure.name for figure in FIGURES]), help="Only these figures."
)
@click.option("--rounds", default=5, show_default=True, help="Rounds of each figure: plain and guarded, in turn.")
@click.option("--jobs", default=5_000, show_default=True, help="Jobs of a round on each side.")
@click.option("--finished", default=5_000_000, show_default=True, help="Finished jobs in the full table.")
@click.option(
    "--json", "to", type=click.Path(path_type=Path), help="Where the report goes; figures that it has are replaced."
)
@click.option("--floors/--no-floors", default=True, help="Fail when a figure does not hold its floor.")
@click.option("--smoke", is_flag=True, help="A few jobs, one round: shows that everything runs, and nothing else.")
def main(
    only: tuple[str, ...], rounds: int, jobs: int, finished: int, to: Path | None, floors: bool, smoke: bool
) -> None:
    """Measure what the guard costs, as ratios against plain Celery."""
    options = SMOKE if smoke else Options(rounds=rounds, jobs=jobs, finished=finished)
    missed = []
    report = json.loads(to.read_text()) if to is not None and to.exists() else {"figures": {}}
    with Lab() as lab:
        report["machine"] = machine(lab)
        for figure in FIGURES:
            if only and figure.name not in only:
                continue
            print(f"{figure.name}: {figure.what}", file=sys.stderr)
            load = os.getloadavg()[0]
            found = figure.measure(lab, options)
            found |= {"load": round(max(load, os.getloadavg()[0]), 1), "at": report["machine"]["at"]}
            report["figures"][figure.name] = found
            holds = figure.holds(found["ratio"])
            if not holds:
                missed.append(figure.name)
            cpu = f", CPU {found['cpu_ratio']:.2f}" if "cpu_ratio" in found else ""
            word = "at most" if figure.at_most else "floor"
            print(f"{figure.name}: {found['ratio']:.2f}{cpu} ({word} {figure.floor:g}{'' if holds else ', MISSED'})")
            if to is not None:
                to.write_text(json.dumps(report, indent=2) + "\n")
    if missed and floors:
        raise SystemExit(f"missed: {', '.join(missed)}")


if __name__ == "__main__":
    main()
