"""Alert rules for Prometheus, as text. What each means and what to do is in the runbook, whose section it links to.

Dead letters have a rule an owner, with the owner as label, so that each team's reach that team.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from .metrics import PREFIX

__all__ = ["RULES", "Rule", "rules_for", "written"]


@dataclass(frozen=True, slots=True)
class Rule:
    """One alert. ``{p}`` in the expression is the prefix of all metrics."""

    name: str
    expression: str
    #: How long it has to hold; Prometheus' spelling.
    lasts: str
    severity: str
    summary: str
    description: str
    labels: dict[str, str] = field(default_factory=dict)

    @property
    def section(self) -> str:
        """The heading in the runbook."""
        return self.name.lower()


RULES = (
    Rule(
        "GuardStoreDown", "{p}store_up == 0", "2m", "critical", "The store of jobs cannot be reached",
        "Nothing is accepted, claimed or settled. Jobs are kept; bodies that run lose their leases.",
    ),
    Rule(
        "GuardMetricsMissing", "absent({p}store_up)", "5m", "warning", "Nobody serves the guard's metrics",
        "None of the other alerts can fire. Start `celery guard metrics`, or the worker that serves them.",
    ),
    Rule(
        "GuardNoRelay", "{p}relays_alive == 0", "2m", "critical", "No relay is alive",
        "Accepted jobs wait, and lost ones are not brought back.",
    ),
    Rule(
        "GuardRelayBehind", "{p}relay_lag_seconds > 120", "5m", "warning", "Due jobs are not being published",
        "The longest waiting has been due for {{ $value | humanizeDuration }}.",
    ),
    Rule(
        "GuardOldestPending", 'max by (queue) ({p}oldest_job_age_seconds{{state="pending"}}) > 300', "5m", "warning",
        "Jobs for {{ $labels.queue }} have been due for long",
        "The oldest has been due for {{ $value | humanizeDuration }} and is not published.",
    ),
    Rule(
        "GuardUnclaimed", 'max by (queue) ({p}oldest_job_age_seconds{{state="sent"}}) > 900', "5m", "warning",
        "No worker takes what is published to {{ $labels.queue }}",
        "The oldest message has waited for {{ $value | humanizeDuration }}: no worker consumes the queue, or too few do.",
    ),
    Rule(
        "GuardCrashLoop", "sum by (task) (increase({p}attempts_crashed_total[15m])) > 5", "0m", "critical",
        "{{ $labels.task }} keeps losing its processes",
        "{{ $value | humanize }} attempts within 15 minutes ended with their lease: killed, out of memory, or hung.",
    ),
    Rule(
        "GuardLateRenewals", "sum(increase({p}leases_renewed_late_total[15m])) > 3", "5m", "warning",
        "Leases are renewed after they have lapsed",
        "{{ $value | humanize }} within 15 minutes: processes are starved or paused, or the store is slow. Jobs are about to run twice.",
    ),
    Rule(
        "GuardDuplicateStorm",
        "sum by (task) (increase({p}duplicates_total[10m])) > 100 and sum by (task) (increase({p}duplicates_total[10m])) "
        "> sum by (task) (increase({p}attempts_started_total[10m]))",
        "5m", "warning", "{{ $labels.task }} is sent or delivered again and again",
        "{{ $value | humanize }} duplicates within 10 minutes, more than attempts. They are turned away, at a cost.",
    ),
    Rule(
        "GuardKeyConflicts", "sum by (task) (increase({p}conflicts_total[15m])) > 0", "0m", "warning",
        "{{ $labels.task }}: the same key with another payload",
        "{{ $value | humanize }} calls within 15 minutes were refused.",
    ),
    Rule(
        "GuardScheduleLate",
        "max by (schedule) ({p}schedule_last_success_timestamp_seconds) < "
        "max by (schedule) ({p}schedule_expected_since_timestamp_seconds offset 1h) and "
        "(max by (schedule) ({p}schedule_last_success_timestamp_seconds) > 0 or "
        "max by (schedule) (changes({p}schedule_expected_since_timestamp_seconds[7d:10m] offset 1h)) > 0)",
        "5m", "warning", "{{ $labels.schedule }} has not succeeded since it was to run",
        "It was to run more than an hour ago. It last succeeded at {{ $value | humanizeTimestamp }} (1970: never).",
    ),
    Rule(
        "GuardReplayWaits", 'sum by (state) ({p}open_replays{{state=~"stopped|paused|building"}}) > 0', "15m", "warning",
        "A replay of dead letters is {{ $labels.state }}",
        "{{ $value }} replays send nothing until a person resumes or aborts them.",
    ),
)  # fmt: skip


def _dead_letters(owner: str) -> Rule:
    return Rule(
        "GuardDeadLetters",
        f"{{p}}dead_letters{{{{owner={json.dumps(owner)}}}}} > 0",
        "0m",
        "warning",
        f"Dead letters of {owner}",
        "{{ $value }} jobs have failed for good and wait for a person.",
        {"owner": owner},
    )


def rules_for(owners: Iterable[str]) -> tuple[Rule, ...]:
    """Every rule; ``owners`` are those that contracts name."""
    return (*RULES, *map(_dead_letters, sorted({*owners, "nobody"})))


def written(rules: Iterable[Rule], runbook: str) -> str:
    """The rules as Prometheus reads them. ``runbook`` is the address of the page of alerts."""
    return "\n".join(_lines(rules, runbook)) + "\n"


def _lines(rules: Iterable[Rule], runbook: str) -> Iterator[str]:
    yield "# Written by `celery guard alerts`. Change thresholds in a copy; `celery guard alerts --check` compares this file."
    yield "groups:"
    yield "  - name: celery-guard"
    yield "    rules:"
    for rule in rules:
        yield f"      - alert: {rule.name}"
        yield f"        expr: {json.dumps(rule.expression.format(p=PREFIX))}"
        yield f"        for: {rule.lasts}"
        yield "        labels:"
        for name, value in {"severity": rule.severity, **rule.labels}.items():
            yield f"          {name}: {json.dumps(value)}"
        yield "        annotations:"
        yield f"          summary: {json.dumps(rule.summary)}"
        yield f"          description: {json.dumps(rule.description)}"
        yield f"          runbook_url: {json.dumps(f'{runbook}#{rule.section}')}"
