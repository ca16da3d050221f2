"""CANCEL: a cancel is a fact of the job's row, and of no worker's memory and no process."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from celery.exceptions import TaskRevokedError

from .faults import APP, found, stranger, typed
from .fleet import Fleet, eventually

pytestmark = pytest.mark.integration


@pytest.fixture
def fleet(make_fleet: Callable[..., Fleet]) -> Fleet:
    return make_fleet("redis-postgresql", APP)


def assert_withdrawn(fleet: Fleet, id: str) -> None:
    """Cancelled in the store, and revoked for Celery."""
    job = fleet.settled(id)
    assert (job.state.value, job.failures) == ("cancelled", ())
    with pytest.raises(TaskRevokedError):
        fleet.app.app.AsyncResult(id).get(timeout=30)


def test_cancel_1_i_a_job_that_was_cancelled_while_no_worker_ran_never_starts(fleet: Fleet) -> None:
    app = fleet.app
    by_command, by_celery = app.note.delay("by command"), app.note.delay("by celery")
    (answer,) = typed(fleet, "jobs", "cancel", by_command.id, "--reason", "test")
    assert answer["answer"] == "cancelled"
    by_celery.revoke()
    fleet.worker("prefork", 1)
    assert app.add.delay(1, 2).get(timeout=30) == 3
    assert_withdrawn(fleet, by_command.id)
    assert_withdrawn(fleet, by_celery.id)
    assert fleet.marks() == ["add"]


def test_cancel_1_ii_a_cancelled_countdown_stays_cancelled_when_every_worker_is_restarted(fleet: Fleet) -> None:
    app = fleet.app
    first = fleet.worker("prefork", 1)
    cancelled = app.note.apply_async(("cancelled",), countdown=1)
    other = app.note.apply_async(("other",), countdown=1)
    cancelled.revoke()
    first.terminate()
    fleet.worker("prefork", 1)
    assert other.get(timeout=30) == "other"  # which was due after the cancelled one
    assert_withdrawn(fleet, cancelled.id)
    assert fleet.marks() == ["note other"]


def test_cancel_1_iii_a_cancel_does_not_hit_the_next_job_of_the_same_process(fleet: Fleet) -> None:
    """Nor does a signal that somebody asks Celery to send, by a broadcast of an app without the guard."""
    app, dashboard = fleet.app, stranger(fleet)
    worker = fleet.worker("prefork", 1)
    a, b = app.wait_for.delay("never"), app.wait_for.delay("b")
    fleet.until(a.id, "running")
    dashboard.control.revoke(a.id, terminate=True, signal="SIGKILL")
    a.revoke(terminate=True, signal="SIGKILL")
    fleet.until(b.id, "running")
    assert_withdrawn(fleet, a.id)
    dashboard.control.revoke(a.id, terminate=True, signal="SIGKILL")
    (answer,) = typed(fleet, "jobs", "cancel", a.id, "--reason", "test", status=1)
    assert answer["answer"] == "too late"
    fleet.raise_flag("b")
    assert b.get(timeout=30) == "b"
    job = fleet.settled(b.id)
    assert (job.state.value, job.attempts, job.crashes, job.cancel) == ("succeeded", 1, 0, False)
    assert "exited with" not in worker.output()
    assert f"{a.id}] is not terminated" in worker.output()


def test_cancel_1_a_cancel_after_the_end_is_too_late_and_changes_nothing(standing: Fleet) -> None:
    result = standing.app.add.delay(2, 3)
    assert result.get(timeout=30) == 5
    eventually(lambda: found(standing, result.id).told)
    before = found(standing, result.id)
    (answer,) = typed(standing, "jobs", "cancel", result.id, "--reason", "test", status=1)
    assert (answer["answer"], answer["state"]) == ("too late", "succeeded")
    result.revoke(terminate=True)
    assert found(standing, result.id) == before
    assert result.get(timeout=30) == 5


def test_cancel_1_iv_the_same_is_seen_in_every_pool(fleet: Fleet) -> None:
    """The running job stops at its next ``check``, the waiting one never starts, the finished one stays as it is."""
    app = fleet.app
    pools = ["gevent", "solo", "threads"]
    queues = {pool: f"{fleet.queue}-{pool}" for pool in pools}
    for worker in [fleet.worker(pool, 1, "-Q", queues[pool], ready=False) for pool in pools]:
        worker.ready()
    done = {pool: app.note.apply_async((f"done {pool}",), queue=queues[pool]) for pool in pools}
    for result in done.values():
        result.get(timeout=30)
    running = {pool: app.wait_for.apply_async((pool,), queue=queues[pool]) for pool in pools}
    for pool in pools:
        fleet.until(running[pool].id, "running")
    waiting = {pool: app.note.apply_async((f"waiting {pool}",), queue=queues[pool]) for pool in pools}
    for pool in pools:
        fleet.until(waiting[pool].id, "sent")
        assert fleet.store.cancel(waiting[pool].id).answer == "cancelled"
        assert fleet.store.cancel(running[pool].id).answer == "asked"
        assert fleet.store.cancel(done[pool].id).answer == "too late"
    for pool in pools:
        assert_withdrawn(fleet, running[pool].id)
        assert_withdrawn(fleet, waiting[pool].id)
        assert fleet.state(done[pool].id) == "succeeded"
    assert fleet.counted() == {"wait_for": 3, **{f"note done {pool}": 1 for pool in pools}}
