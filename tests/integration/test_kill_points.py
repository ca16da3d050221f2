"""A process is killed at every place where it could die, and the job, its canvas and its effects come out right.

The places are found, not listed: a job of each kind is recorded first, then one job for each point that it passed is enqueued, and
kills the child that takes it there. See ``celery_guard.testing.faults`` for the points and ``deaths.py`` for what is right.
"""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from .deaths import MODULE, Case, Deaths, right
from .fleet import ROOT, Fleet, eventually

pytestmark = [pytest.mark.integration, pytest.mark.timeout(300)]

#: Which kinds of jobs are killed on which stack.
KINDS = {
    "redis-postgresql": ("plain", "chain", "chord", "book", "again"),
    "embedded": ("plain", "chain", "chord", "book", "again"),
    "rabbitmq-mariadb": ("plain", "book", "again"),
}

#: Longer than a busy machine's pauses: what lapses here is to lapse because its process died.
PATIENT = {"CELERY_GUARD_LEASE": "3s", "CELERY_GUARD_RELAY_HOLD": "2s"}

#: Celery's Redis backend keeps a chord whose dispatcher died from the others for the time that its publishing could take.
QUICK_CHORDS = {"task_publish_retry": False, "broker_connection_timeout": 2, "result_chord_join_timeout": 2}


@dataclass(frozen=True)
class Run:
    """What was left after everybody had died everywhere, and what is right: by kind, by where they died."""

    points: dict[str, list[str]]
    left: dict[str, dict[str, Any]]
    right: dict[str, dict[str, Any]]


#: One worker serves all kinds of a stack, for the first test that asks.
_runs: dict[str, Run] = {}


@pytest.fixture
def run(request: pytest.FixtureRequest, make_fleet: Callable[..., Fleet]) -> Run:
    """Every kind of a stack, killed at every point, by the children of one worker."""
    stack: str = request.param
    if stack not in _runs:
        fleet = make_fleet(stack, MODULE, worker_prefetch_multiplier=20, **QUICK_CHORDS)
        deaths = Deaths(fleet)
        fleet.worker("prefork", 8, **PATIENT, **deaths.environment)
        points = recorded(deaths, KINDS[stack])
        for kind in KINDS[stack]:
            for aim in aims(kind, points[kind]):
                deaths.send(kind, aim)
        deaths.rest()
        left, expected = by_kind(deaths, deaths.cases[len(KINDS[stack]) :], points)
        _runs[stack] = Run(points, left, expected)
    return _runs[stack]


def recorded(deaths: Deaths, kinds: tuple[str, ...]) -> dict[str, list[str]]:
    """The points that a job of each kind passes; of one that is told again, those of its second delivery."""
    cases = [deaths.record(kind, "tell.before+" if kind == "again" else "") for kind in kinds]
    deaths.rest()
    return {case.kind: deaths.recorded(case) for case in cases}


def aims(kind: str, points: list[str]) -> list[str]:
    """Where jobs of a kind are to die."""
    if kind == "again":
        return [f"tell.before+{point}" for point in points]
    # of a chord also both members, each with its part returned
    return [*points, "tell.after+tell.after"] if kind == "chord" else points


def by_kind(
    deaths: Deaths, cases: list[Case], points: dict[str, list[str]]
) -> tuple[dict[str, dict[str, Any]], dict[str, dict[str, Any]]]:
    """What the cases have left, and what is right."""
    left: dict[str, dict[str, Any]] = {}
    expected: dict[str, dict[str, Any]] = {}
    for case, found in deaths.left(cases).items():
        left.setdefault(case.kind, {})[case.aim] = found
        expected.setdefault(case.kind, {})[case.aim] = right(case, points[case.kind])
    return left, expected


def on(*stacks: str) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("run", stacks, indirect=True)


@on("redis-postgresql", "embedded", "rabbitmq-mariadb")
def test_a_plain_job_ends_once_wherever_its_process_dies(run: Run) -> None:
    assert run.left["plain"] == run.right["plain"]


@on("redis-postgresql", "embedded")
def test_a_chain_goes_on_once_wherever_its_first_process_dies(run: Run) -> None:
    assert run.left["chain"] == run.right["chain"]


@on("redis-postgresql", "embedded")
def test_a_chord_fires_once_wherever_a_members_process_dies(run: Run) -> None:
    assert run.left["chord"] == run.right["chord"]


@on("redis-postgresql", "embedded", "rabbitmq-mariadb")
def test_effects_in_the_jobs_transaction_happen_once_wherever_its_process_dies(run: Run) -> None:
    assert run.left["book"] == run.right["book"]
