"""CRASH: processes that die in the middle of a body, and bodies that are ended at their hard limit."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from celery_guard.errors import JobFailed

from .faults import APP, causes, entered
from .fleet import Fleet

pytestmark = pytest.mark.integration


def test_crash_1_a_job_that_kills_each_child_is_a_dead_letter_after_its_bound(standing: Fleet) -> None:
    app = standing.app
    result = app.eats_memory.delay()
    others = [app.add.delay(n, n) for n in range(8)]
    running = standing.until(result.id, "running")
    assert (running.attempts, running.crashes) == (1, 0)  # counted where it started, for it will not report
    assert [other.get(timeout=30) for other in others] == [0, 2, 4, 6, 8, 10, 12, 14]
    with pytest.raises(JobFailed, match="worker lost"):
        result.get(timeout=30)
    job = standing.settled(result.id)
    assert (job.state.value, job.reason.value, job.attempts, job.crashes) == ("dead", "crashed", 3, 3)
    assert causes(job) == ["worker lost"] * 3
    assert entered(standing, result.id) == [("eats_memory", n, n) for n in (1, 2, 3)]


def test_crash_1_a_job_that_kills_each_node_is_a_dead_letter_after_its_bound(
    make_fleet: Callable[..., Fleet],
) -> None:
    """The broker redelivers, too, and that is of no use to the job."""
    options = {"visibility_timeout": 1, "unacked_restore_interval": 1, "unacked_restore_throttle": 1}
    fleet = make_fleet("redis-postgresql", APP, transport=options)
    for _ in range(4):
        fleet.worker("prefork", 1, ready=False, CELERY_GUARD_RELAY_HOLD="1s")
    result = fleet.app.eats_memory.delay(node=True)
    job = fleet.settled(result.id, seconds=60)
    assert (job.state.value, job.reason.value, job.attempts, job.crashes) == ("dead", "crashed", 3, 3)
    assert entered(fleet, result.id) == [("eats_memory", n, n) for n in (1, 2, 3)]
    assert fleet.app.add.delay(2, 3).get(timeout=30) == 5
    assert sum(worker.process.poll() is None for worker in fleet.workers) == 1
    assert entered(fleet, result.id) == [("eats_memory", n, n) for n in (1, 2, 3)]


def test_crash_3_i_a_job_whose_child_is_killed_comes_back(standing: Fleet) -> None:
    """Though it has a limit: only one that was alive right before its limit was ended there."""
    result = standing.app.killed_once.delay("crash-3-i")
    assert result.get(timeout=30) == "crash-3-i"
    job = standing.settled(result.id)
    assert (job.attempts, job.crashes, causes(job)) == (2, 1, ["worker lost"])


@pytest.mark.parametrize(
    "name",
    [
        pytest.param("overtime", id="ii"),
        pytest.param("unacked_overtime", id="iii"),
        pytest.param("hangs_in_native_code", id="where_only_sigkill_helps"),
    ],
)
def test_crash_3_an_attempt_at_its_hard_limit_is_counted_and_final_without_a_retry(standing: Fleet, name: str) -> None:
    result = getattr(standing.app, name).delay()
    with pytest.raises(JobFailed, match="time limit"):
        result.get(timeout=30)
    job = standing.settled(result.id)
    assert (job.state.value, job.reason.value, job.attempts, job.crashes) == ("dead", "time_limit", 1, 0)
    assert causes(job) == ["time limit"]
    assert entered(standing, result.id) == [(name, 1, 1)]


def test_crash_3_attempts_at_the_hard_limit_are_repeated_as_often_as_was_said(standing: Fleet) -> None:
    result = standing.app.overtime_twice.delay()
    job = standing.settled(result.id)
    assert (job.reason.value, job.attempts, job.crashes, job.retries) == ("time_limit", 2, 0, 1)
    assert causes(job) == ["time limit"] * 2
    assert entered(standing, result.id) == [("overtime_twice", 1, 1), ("overtime_twice", 2, 2)]


def test_crash_3_a_worker_names_at_boot_what_late_acks_do_not_do(standing: Fleet) -> None:
    (worker,) = standing.workers
    found = [line for line in worker.output().splitlines() if "CHECK-102" in line]
    assert len(found) == 1
    assert "late_and_unguarded" in found[0]
    assert "overtime" not in found[0]
