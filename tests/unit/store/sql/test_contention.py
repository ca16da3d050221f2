"""A chain's next step whose key another open transaction is taking: PostgreSQL says so at once."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta

import pytest
from sqlalchemy import create_engine, text
from sqlalchemy.engine import Connection
from sqlalchemy.pool import NullPool

from celery_guard.contract.contract import Effective
from celery_guard.contract.timing import Timing
from celery_guard.errors import KeyBusy
from celery_guard.flow.context import RunningJob
from celery_guard.flow.lease import LeaseKeeper
from celery_guard.flow.run import Runner
from celery_guard.job.delivery import Again, Delivery, Done
from celery_guard.job.outcome import Outcome, Returned
from celery_guard.job.row import NewJob, StoredResult
from celery_guard.job.state import Reason, State
from celery_guard.settings import Settings
from celery_guard.store.sql import SqlStore
from celery_guard.testing.conformance.builders import keyed, new_job, result, succeeded
from celery_guard.testing.conformance.moves import eventually, found, start

from .conftest import SHORT


@pytest.fixture
def busy(postgresql_url: str) -> Iterator[SqlStore]:
    store = SqlStore(postgresql_url, patience=SHORT)
    store.upgrade()
    yield store
    store.close()


@pytest.fixture
def taking(busy: SqlStore, postgresql_url: str) -> Iterator[Connection]:
    """A transaction of somebody else's."""
    engine = create_engine(postgresql_url, poolclass=NullPool)
    with engine.connect() as connection:
        yield connection


def test_settle_says_so_when_it_has_waited_for_long_enough(busy: SqlStore, taking: Connection) -> None:
    ship = keyed("ship 1", in_canvas=True)
    granted = start(busy)
    busy.door(taking).enqueue([keyed("ship 1")])
    with pytest.raises(KeyBusy, match="which follows, is being taken"):
        busy.settle(succeeded(granted, follow=(ship,)))
    assert found(busy, granted.id).state is State.RUNNING
    taking.rollback()
    assert busy.settle(succeeded(granted, follow=(ship,)))
    assert found(busy, ship.id).holder is None


class Charging:
    """Writes through its job, and is followed by a job that has a key."""

    def __init__(self, follows: NewJob, enlists: bool) -> None:
        self._follows = follows
        self._enlists = enlists
        self.runs = 0

    def run(self, job: RunningJob) -> Outcome:
        self.runs += 1
        if self._enlists:
            job.transaction().execute(text("SELECT 1"))
        return Returned(result(), (self._follows,))

    def given(self, job: RunningJob, result: StoredResult | None) -> Outcome:
        raise AssertionError("it holds its own key")


@pytest.mark.parametrize("enlists", [True, False], ids=["in the job's transaction", "plain"])
def test_an_attempt_whose_next_step_is_contended_runs_again_and_is_no_crash(
    busy: SqlStore, taking: Connection, enlists: bool
) -> None:
    key = f"ship {enlists}"
    job, ship = new_job(), keyed(key, in_canvas=True)
    busy.enqueue([job])
    body = Charging(ship, enlists)
    settings = Settings(store="sqlite://", lease=timedelta(seconds=60))
    runner = Runner(busy, LeaseKeeper(busy), settings, lambda: "worker-1")
    delivery = Delivery(
        job.id, job.task, Effective(task=job.task, timing=Timing()), "w", tells_success=False, tells_failure=False
    )
    busy.door(taking).enqueue([keyed(key)])
    ending = runner.run(delivery, body)
    assert isinstance(ending, Again)
    row = found(busy, job.id)
    assert (row.state, row.reason, row.interruptions) == (State.PENDING, Reason.HELD_KEY, 1)
    assert (row.attempts, row.crashes, row.retries) == (0, 0, 0)
    taking.commit()
    assert eventually(lambda: isinstance(runner.run(delivery, body), Done))
    assert body.runs == 2
    assert found(busy, ship.id).holder is not None, "it follows the job that took its key"
