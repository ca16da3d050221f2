"""A dashboard for Grafana, as JSON: one picture of whether jobs get through, and where they do not."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from .metrics import PREFIX

__all__ = ["PANELS", "Panel", "written"]

_WIDTH, _HEIGHT, _COLUMNS = 8, 8, 3


@dataclass(frozen=True, slots=True)
class Panel:
    """One picture. In a query ``{p}`` is the prefix of all metrics, and ``{r}`` the range that Grafana chooses."""

    title: str
    text: str
    unit: str
    #: (query, what a line is called)
    queries: tuple[tuple[str, str], ...]
    kind: str = "timeseries"


PANELS = (
    Panel(
        "Is it well?", "The store answers, and relays are at work.", "short",
        (("{p}store_up", "store"), ("{p}relays_alive", "relays")), "stat",
    ),
    Panel("Relay lag", "How long the longest waiting of what is due has been due.", "s", (("{p}relay_lag_seconds", "lag"),)),
    Panel(
        "Dead letters by owner", "They wait for a person.", "short", (("{p}dead_letters", "{{{{owner}}}}"),),
    ),
    Panel("Jobs by state", "What has not ended, and what is dead.", "short", (("sum by (state) ({p}jobs)", "{{{{state}}}}"),)),
    Panel(
        "Oldest by state and queue", "Due and not published, published and not taken, at work.", "s",
        (("max by (state, queue) ({p}oldest_job_age_seconds)", "{{{{state}}}} {{{{queue}}}}"),),
    ),
    Panel("Live leases", "Attempts at work right now.", "short", (("sum by (task) ({p}live_leases)", "{{{{task}}}}"),)),
    Panel(
        "Accepted and ended", "Jobs a second.", "ops",
        (
            ("sum(rate({p}jobs_enqueued_total[{r}]))", "accepted"),
            ("sum by (outcome) (rate({p}jobs_ended_total[{r}]))", "{{{{outcome}}}}"),
        ),
    ),
    Panel(
        "Failed attempts by class", "A second.", "ops",
        (("sum by (failure_class) (rate({p}attempts_failed_total[{r}]))", "{{{{failure_class}}}}"),),
    ),
    Panel(
        "Retries and replays", "A second.", "ops",
        (
            ("sum by (failure_class) (rate({p}retries_total[{r}]))", "retries {{{{failure_class}}}}"),
            ("sum(rate({p}replays_total[{r}]))", "replays"),
        ),
    ),
    Panel(
        "Schedules", "How long ago what each has sent last succeeded.", "s",
        (("time() - max by (schedule) ({p}schedule_last_success_timestamp_seconds > 0)", "{{{{schedule}}}}"),),
    ),
    Panel("Replays", "Not over: stopped, paused and building ones wait for a person.", "short", (("{p}open_replays", "{{{{state}}}}"),)),
    Panel(
        "Run time", "Of the last attempt of a job that ended: half of them, and 19 of 20.", "s",
        (
            ("histogram_quantile(0.5, sum by (le) (rate({p}run_seconds_bucket[{r}])))", "p50"),
            ("histogram_quantile(0.95, sum by (le) (rate({p}run_seconds_bucket[{r}])))", "p95"),
        ),
    ),
    Panel(
        "Crashed, fenced, late", "Attempts that lost their process, or their lease; a second.", "ops",
        (
            ("sum(rate({p}attempts_crashed_total[{r}]))", "crashed"),
            ("sum(rate({p}attempts_fenced_total[{r}]))", "fenced"),
            ("sum(rate({p}leases_renewed_late_total[{r}]))", "renewed late"),
        ),
    ),
    Panel(
        "Duplicates and conflicts", "Turned away, a second.", "ops",
        (
            ("sum by (at) (rate({p}duplicates_total[{r}]))", "duplicate at {{{{at}}}}"),
            ("sum(rate({p}conflicts_total[{r}]))", "conflict"),
        ),
    ),
)  # fmt: skip


def written() -> str:
    """The dashboard as Grafana imports it."""
    board = {
        "title": "celery-guard",
        "uid": "celery-guard",
        "tags": ["celery", "celery-guard"],
        "schemaVersion": 39,
        "editable": True,
        "refresh": "30s",
        "time": {"from": "now-6h", "to": "now"},
        "templating": {"list": [{"name": "source", "label": "Prometheus", "type": "datasource", "query": "prometheus"}]},
        "panels": [_panel(place, panel) for place, panel in enumerate(PANELS)],
    }  # fmt: skip
    return json.dumps(board, indent=2) + "\n"


def _panel(place: int, panel: Panel) -> dict[str, Any]:
    row, column = divmod(place, _COLUMNS)
    source = {"type": "prometheus", "uid": "${source}"}
    return {
        "id": place + 1,
        "type": panel.kind,
        "title": panel.title,
        "description": panel.text,
        "datasource": source,
        "gridPos": {"x": column * _WIDTH, "y": row * _HEIGHT, "w": _WIDTH, "h": _HEIGHT},
        "fieldConfig": {"defaults": {"unit": panel.unit, "min": 0}, "overrides": []},
        "targets": [
            {
                "refId": chr(ord("A") + number),
                "datasource": source,
                "expr": query.format(p=PREFIX, r="$__rate_interval"),
                "legendFormat": name.format(),
            }
            for number, (query, name) in enumerate(panel.queries)
        ],
    }
