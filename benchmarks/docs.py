"""The tables and plots of ``docs/explanation/performance.md``, made from the report alone: nothing in them is written by hand."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from statistics import median
from typing import Any

from .figures import FIGURES, Figure

__all__ = ["PAGE", "REPORT", "page", "write"]

ROOT = Path(__file__).resolve().parents[1]
REPORT = ROOT / "benchmarks" / "report.json"
PAGE = ROOT / "docs" / "explanation" / "performance.md"
PLOT = PAGE.parent / "performance.svg"

#: One-minute load before a figure, a core: above it others were at work on the machine.
_BUSY = 0.7


def write() -> None:
    """Bring the page and its plot to the report."""
    report = json.loads(REPORT.read_text())
    PAGE.write_text(page(PAGE.read_text(), report))
    from .plot import draw

    draw(PLOT, report, FIGURES)


def page(text: str, report: Mapping[str, Any]) -> str:
    """The page with what stands between its marks made anew."""
    for name, part in _PARTS.items():
        begin, end = f"<!-- measured: {name} -->", "<!-- end -->"
        pattern = re.compile(f"{re.escape(begin)}.*?{re.escape(end)}", re.DOTALL)
        if not pattern.search(text):
            raise ValueError(f"{PAGE.name} has no place for {name!r}: write {begin} and {end}")
        filled = f"{begin}\n{part(report)}\n{end}"
        text = pattern.sub(lambda _, filled=filled: filled, text, count=1)  # type: ignore[misc]
    return text


def _table(report: Mapping[str, Any]) -> str:
    rows = ["| what | floor | measured | of CPU seconds | load | |", "|---|---|---|---|---|---|"]
    rows += [_row(figure, report["figures"].get(figure.name), report) for figure in FIGURES]
    return "\n".join(rows)


def _row(figure: Figure, found: Mapping[str, Any] | None, report: Mapping[str, Any]) -> str:
    if found is None:
        return f"| {figure.what} | {figure.bound or '–'} | not measured | | | |"
    cpu = f"{found['cpu_ratio']:.2f}" if "cpu_ratio" in found else ""
    words = []
    if not figure.holds(found["ratio"]):
        words.append("**missed**")
    if found["load"] / report["machine"]["cores"] > _BUSY:
        words.append("busy machine")
    if "finished" in found and found["finished"] != 5_000_000:
        words.append(f"{found['finished']:,} finished jobs")
    shown = f"{found['ratio']:.2f}"
    return f"| {figure.what} | {figure.bound or '–'} | {shown} | {cpu} | {found['load']:g} | {', '.join(words)} |"


def _machine(report: Mapping[str, Any]) -> str:
    machine = report["machine"]
    versions = ", ".join(f"{name} {number}" for name, number in machine["versions"].items())
    settings = ", ".join(f"{name} = {value}" for name, value in machine["postgresql"].items())
    return "\n".join(
        [
            f"- {machine['cores']} cores ({machine['architecture']}), {machine['pool']}; brokers and databases on the same machine",
            f"- {versions}",
            f"- PostgreSQL: {settings}; Redis: no persistence",
            f"- last measured {machine['at'][:10]}",
        ]
    )


def _conditions(report: Mapping[str, Any]) -> str:
    rows = ["| figure | rounds | jobs a round | relay | results |", "|---|---|---|---|---|"]
    for figure in FIGURES:
        found = report["figures"].get(figure.name)
        if found is not None:
            rounds = len(found.get("rounds", [1]))
            jobs = found.get("jobs") or (
                found["rounds"][0].get("plain", {}).get("jobs", "") if "rounds" in found else ""
            )
            rows.append(f"| `{figure.name}` | {rounds} | {jobs} | {found['relay']} | {found['results']} |")
    return "\n".join(rows)


def _costs(report: Mapping[str, Any]) -> str:
    rows = ["| of one job | plain | guarded |", "|---|---|---|"]
    for name, what in _CPU.items():
        found = report["figures"].get(name)
        if found is not None:
            plain, guarded = (
                median(each[side]["cpu"] / each[side]["jobs"] * 1e6 for each in found["rounds"])
                for side in ("plain", "guarded")
            )
            rows.append(f"| CPU, {what} (µs, our processes only) | {plain:,.0f} | {guarded:,.0f} |")
    for name, store in (("trips-postgresql", "PostgreSQL"), ("trips-redis", "Redis")):
        found = report["figures"].get(name)
        if found is not None:
            rows.append(f"| round trips of an attempt, {store} | 0 | {found['ratio']:.2f} |")
    found = report["figures"].get("bytes")
    if found is not None:
        message, written = found["message"], found["wal"]
        rows.append(f"| message in the broker (bytes) | {message['plain']} | {message['guarded']} |")
        rows.append(
            f"| rows in PostgreSQL: job, message (bytes) | 0 | {found['rows']['job']}, {found['rows']['payload']} |"
        )
        rows.append(
            f"| WAL: enqueue, relay, attempt (bytes) | 0 | {written['enqueue']}, {written['relay']}, {written['attempt']} |"
        )
    return "\n".join(rows)


_CPU = {
    "delay": "one `.delay()`",
    "enqueue-many": "one of `enqueue_many`",
    "relay-redis": "publishing, Redis",
    "relay-rabbitmq": "publishing, RabbitMQ",
    "worker-redis-postgresql": "worker, Redis broker, PostgreSQL store",
    "worker-redis-redis": "worker, Redis broker, Redis store",
    "worker-rabbitmq-postgresql": "worker, RabbitMQ, PostgreSQL store",
    "worker-rabbitmq-redis": "worker, RabbitMQ, Redis store",
}

_PARTS: dict[str, Callable[[Mapping[str, Any]], str]] = {
    "table": _table,
    "machine": _machine,
    "costs": _costs,
    "conditions": _conditions,
}
