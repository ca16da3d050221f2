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
import redis

from celery_guard.store.redis import scripts
from celery_guard.testing.services import REDIS

from .deaths import MODULE, Case, Deaths, life_before, right
from .fleet import ROOT, Fleet, eventually

pytestmark = [pytest.mark.integration, pytest.mark.timeout(300)]

#: Which kinds of jobs are killed on which stack.
KINDS = {
    "redis-postgresql": ("plain", "chain", "chord", "book", "again"),
    "embedded": ("plain", "chain", "chord", "book", "again"),
    "rabbitmq-mariadb": ("plain", "book", "again"),
    "redis-redis": ("plain", "chain", "chord", "again"),
}

#: What a node that dies as a whole holds: its jobs of a kind at these points, or at both ends of every step. On SQLite a job that stays
#: where it has written keeps all others from writing, and the embedded broker forgets what Celery waits with for a chord.
ON_NODE: dict[str, dict[str, tuple[str, ...]]] = {
    "redis-postgresql": {
        "plain": (),
        "chain": ("settle.before", "settle.after", "tell.after"),
        "chord": ("settle.after", "part.before", "part.after", "tell.after"),
        "book": ("commit.before", "commit.after", "tell.before"),
    },
    "embedded": {"plain": (), "chain": ("settle.before", "settle.after", "tell.after")},
    "redis-redis": {
        "plain": (),
        "chain": ("settle.before", "settle.after", "tell.after"),
        "chord": ("settle.after", "part.before", "part.after", "tell.after"),
    },
}

#: Ends of steps at which the row says the same as at the first or last write inside.
ENDS_OF_WRITES = {f"{step}.{end}" for step in ("claim", "settle", "commit", "told") for end in ("before", "after")}

#: Longer than a busy machine's pauses: what lapses here is to lapse because its process died.
PATIENT = {"CELERY_GUARD_LEASE": "3s", "CELERY_GUARD_RELAY_HOLD": "2s", "CELERY_GUARD_SUSPECT_AFTER": "3s"}

#: Celery's Redis backend keeps a chord whose sender died from all others for the time that sending could take: here eight seconds.
QUICK_CHORDS = {"task_publish_retry": False}


@dataclass(frozen=True)
class Run:
    """What was left after everybody had died everywhere, and what is right: by kind, by where they died."""

    stack: str
    points: dict[str, list[str]]
    left: dict[str, dict[str, Any]]
    right: dict[str, dict[str, Any]]


#: One worker serves all kinds of a stack, for the first test that asks. None: it did not come to its end.
_runs: dict[str, Run | None] = {}


@pytest.fixture
def run(request: pytest.FixtureRequest, make_fleet: Callable[..., Fleet]) -> Run:
    """Every kind of a stack, killed at every point, by the children of one worker."""
    stack: str = request.param
    if stack not in _runs:
        _runs[stack] = None
        _runs[stack] = kill_everywhere(stack, deaths_on(stack, make_fleet))
    found = _runs[stack]
    assert found is not None, "see the first test of this stack"
    return found


def kill_everywhere(stack: str, deaths: Deaths) -> Run:
    if stack == "redis-redis":
        let_scripts_be_known()
    # a pool takes a second to go on after a death, however many died
    deaths.worker(16)
    points = recorded(deaths, KINDS[stack])
    for kind in KINDS[stack]:
        for aim in aims(kind, points[kind]):
            deaths.send(kind, aim)
    deaths.rest()
    left, expected = by_kind(deaths, deaths.cases[len(KINDS[stack]) :], points)
    return Run(stack, points, left, expected)


def let_scripts_be_known() -> None:
    """A server that does not know a script yet is asked twice, which would be two writes."""
    with redis.Redis.from_url(REDIS.url) as client:
        for name in scripts.names():
            client.script_load(scripts.script(name).text)


def deaths_on(stack: str, make_fleet: Callable[..., Fleet]) -> Deaths:
    # messages in store: the broker is asked for more only now and then
    fleet = make_fleet(stack, MODULE, worker_prefetch_multiplier=20, **QUICK_CHORDS)
    fleet.environment.update(PATIENT)
    return Deaths(fleet)


def recorded(deaths: Deaths, kinds: tuple[str, ...]) -> dict[str, list[str]]:
    """The points that a job of each kind passes; of one that is told again, those of its second delivery."""
    cases = [deaths.record(kind, "tell.before+" if kind == "again" else "") for kind in kinds]
    deaths.rest(40)

    def found() -> dict[str, list[str]]:
        return {case.kind: deaths.recorded(case) for case in cases}

    # the last point is behind the write that brings them to rest
    eventually(lambda: all(points[-1:] == ["told.after"] for points in found().values()), what="told to the end")
    return found()


def aims(kind: str, points: list[str]) -> list[str]:
    """Where jobs of a kind are to die: everywhere; but what one step is for all kinds, is tried at both its ends by one of them."""
    if kind != "plain":
        points = [point for point in points if point not in ENDS_OF_WRITES]
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


@on("redis-postgresql", "embedded", "rabbitmq-mariadb", "redis-redis")
def test_a_plain_job_ends_once_wherever_its_process_dies(run: Run) -> None:
    assert run.left["plain"] == run.right["plain"]


@on("redis-postgresql", "embedded", "redis-redis")
def test_a_chain_goes_on_once_wherever_its_first_process_dies(run: Run) -> None:
    assert run.left["chain"] == run.right["chain"]


@on("redis-postgresql", "embedded", "redis-redis")
def test_a_chord_fires_once_wherever_a_members_process_dies(run: Run) -> None:
    assert run.left["chord"] == run.right["chord"]


@on("redis-postgresql", "embedded", "rabbitmq-mariadb")
def test_effects_in_the_jobs_transaction_happen_once_wherever_its_process_dies(run: Run) -> None:
    assert run.left["book"] == run.right["book"]


@on("redis-postgresql", "embedded", "rabbitmq-mariadb", "redis-redis")
def test_what_is_told_again_is_told_wherever_the_second_process_dies(run: Run) -> None:
    assert run.left["again"] == run.right["again"]


@on("redis-postgresql", "embedded", "rabbitmq-mariadb")
def test_every_write_of_every_step_was_died_at(run: Run) -> None:
    writes = {kind: writes_of(points) for kind, points in run.points.items()}
    assert writes["plain"].keys() >= {"claim", "settle", "told"}
    # a claim that tells again has to become the one that does
    assert writes["again"]["claim"] > writes["plain"]["claim"]
    # the body's own write and its job, inside one transaction with the end of the job
    assert writes["book"]["body"] >= 3
    assert writes["book"]["commit"] >= 2
    assert "settle" not in writes["book"]
    if "chain" in writes:
        # BEGIN, the move, the next step, the link, COMMIT
        assert writes["chain"]["settle"] >= 5
        # with Redis the member that comes last sends the body
        assert bool(writes["chord"]["part"]) == (run.stack == "redis-postgresql")


@on("redis-redis")
def test_on_redis_every_step_is_one_write_and_was_died_at(run: Run) -> None:
    for kind, points in run.points.items():
        writes = writes_of(points)
        steps = {"claim", "told"} if kind == "again" else {"claim", "settle", "told"}
        assert {step: writes[step] for step in steps} == dict.fromkeys(steps, 1), (kind, points)


def writes_of(points: list[str]) -> Counter[str]:
    """How many writes each step has."""
    return Counter(point.partition(".")[0] for point in points if re.fullmatch(r"[a-z]+\.\d+\.after", point))


@pytest.mark.parametrize("stack", ["redis-postgresql", "embedded", "redis-redis"])
def test_a_node_that_dies_with_jobs_at_every_point_loses_none(stack: str, make_fleet: Callable[..., Fleet]) -> None:
    deaths = deaths_on(stack, make_fleet)
    node = deaths.worker(30, "stay")
    points = recorded(deaths, tuple(ON_NODE[stack]))
    cases = [deaths.send(kind, aim) for kind, found in ON_NODE[stack].items() for aim in found or ends(points[kind])]
    eventually(lambda: all(deaths.faults.struck(case.ids[0]) for case in cases), 60, "a job at each point")
    held = {id for case in cases if life_before(points[case.kind], case.aim) != "settled" for id in case.ids}
    eventually(lambda: deaths.still(held), 60, "no other job on its way")
    node.kill()
    deaths.worker(4)
    deaths.rest()
    left, expected = by_kind(deaths, cases, points)
    assert left == expected


def ends(points: list[str]) -> list[str]:
    """The ends of all steps."""
    return [point for point in points if re.fullmatch(r"[a-z]+\.(before|after)", point)]


@pytest.mark.parametrize("stack", ["redis-postgresql", "embedded", "rabbitmq-mariadb", "redis-redis"])
def test_a_relay_that_dies_anywhere_loses_no_job_and_runs_none_twice(
    stack: str, make_fleet: Callable[..., Fleet]
) -> None:
    deaths = deaths_on(stack, make_fleet)
    died = relays_in_children(deaths)
    assert {point: end for point, end in died.items() if end != -signal.SIGKILL} == {}
    deaths.worker(4)
    deaths.rest(expected=3 * (len(died) + 1))
    seen = {
        job.id: (job.state.value, job.told, job.attempts, job.crashes) for job in deaths.fleet.store.jobs(limit=1000)
    }
    assert seen == {
        id: ("succeeded", True, 2, 1) if id.endswith("lapsed") else ("succeeded", True, 1, 0) for id in seen
    }
    assert Counter(id for _, id, _, _ in deaths.fleet.lines()) == Counter(list(seen))


def relays_in_children(deaths: Deaths) -> dict[str, int]:
    """How relays ended, by the point at which they were to die."""
    script = f"from {MODULE} import relay_in_children; relay_in_children()"
    done = subprocess.run(
        [sys.executable, "-c", script, str(deaths.folder)],
        cwd=ROOT, env=deaths.fleet.environment, capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    found: dict[str, int] = json.loads(done.stdout)
    return found


def test_a_workers_relay_that_dies_is_started_again(make_fleet: Callable[..., Fleet]) -> None:
    deaths = deaths_on("redis-postgresql", make_fleet)
    worker = deaths.worker(2)
    cases = [deaths.send("plain", aim) for aim in ("publish.before", "publish.1.after", "sent.before")]
    deaths.rest()
    assert [deaths.faults.struck(case.ids[0]) for case in cases] == [1, 1, 1]
    assert worker.output().count("the relay died") == 3
    assert [left["entries"] for left in deaths.left(cases).values()] == [1, 1, 1]
