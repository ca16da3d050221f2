"""The plot: each figure's ratio, how far its rounds lie apart, and its floor."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl

from .figures import Figure

__all__ = ["draw"]


def draw(to: Path, report: Mapping[str, Any], figures: Sequence[Figure]) -> None:
    """Write an SVG that is the same for the same report."""
    mpl.use("svg")
    mpl.rcParams["svg.hashsalt"] = "celery-guard"
    import matplotlib.pyplot as plt

    shown = [figure for figure in figures if figure.name in report["figures"] and figure.floor is not None]
    canvas, axes = plt.subplots(figsize=(9, 0.42 * len(shown) + 1.2))
    for place, figure in enumerate(reversed(shown)):
        found = report["figures"][figure.name]
        each = [_ratio(one, found.get("longer", False)) for one in found.get("rounds", [])]
        axes.plot([found["ratio"]], [place], "o", color="tab:green" if figure.holds(found["ratio"]) else "tab:red")
        if each:
            axes.plot([min(each), max(each)], [place, place], "-", color="tab:gray", linewidth=1)
        axes.plot([figure.floor or 0.0], [place], "<" if figure.at_most else ">", color="black", markersize=5)
    axes.set_yticks(range(len(shown)), [figure.name for figure in reversed(shown)])
    axes.set_xscale("log")
    axes.set_xlabel("ratio (logarithmic); the triangle is the floor, and points to where it holds")
    axes.grid(axis="x", which="both", alpha=0.3)
    canvas.tight_layout()
    canvas.savefig(to, format="svg", metadata={"Date": None})
    plt.close(canvas)


def _ratio(one: Mapping[str, Any], longer: bool) -> float:
    """The ratio of one round; of a pick-up by its 95th percentile. ``longer``: how much longer, not how much faster."""
    plain, guarded = one["plain"], one["guarded"]
    if "p95" in plain:
        return float(guarded["p95"] / plain["p95"])
    faster = float(plain["wall"] / plain["jobs"] / (guarded["wall"] / guarded["jobs"]))
    return 1 / faster if longer else faster
