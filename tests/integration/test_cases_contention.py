"""DB-4: deadlocks, serialization failures and locked databases are the store's affair, and never a job's.

First really, with ten that work on one table at once; then by a driver that answers any write with the error of the database. The errors of the
network are in the conformance suite (``cut``).
"""

from __future__ import annotations

import random
import sqlite3
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from datetime import timedelta
from functools import partial
from importlib import import_module
from threading import Event
from typing import Any

import psycopg.errors
import pymysql.err
import pytest
from sqlalchemy import create_engine, text
from sqlalchemy.exc import DBAPIError
from sqlalchemy.orm import Session

from celery_guard.contract.contract import Effective
from celery_guard.errors import StoreUnavailableError
from celery_guard.flow.lease import LeaseKeeper
from celery_guard.flow.relay import Published, Relay
from celery_guard.flow.run import Runner
from celery_guard.flow.sweep import Sweep
from celery_guard.job.delivery import Delivery
from celery_guard.job.row import Outgoing
from celery_guard.job.state import State
from celery_guard.job.verdict import Granted
from celery_guard.settings import Settings
from celery_guard.store import open_store
from celery_guard.store.patience import Patience
from celery_guard.store.protocol import Store
from celery_guard.store.sql import SqlStore
from celery_guard.testing.conformance import Subject, cut, cut_people, cut_relay, opened_store, store
from celery_guard.testing.conformance.builders import LONG, NONE, dead, keyed, new_id, new_job, retried, succeeded
from celery_guard.testing.conformance.crowd import together
from celery_guard.testing.conformance.moves import accept, eventually, found, lease_of, publish
from celery_guard.testing.databases import empty, lose_message
from celery_guard.testing.driver import watched

__all__ = ["opened_store", "store"]

pytestmark = pytest.mark.integration

DATABASES = ("sqlite", "postgresql", "mariadb")

#: Has PostgreSQL make every transaction a serializable one that does not say otherwise.
STRICT = "?options=-c%20default_transaction_isolation%3Dserializable"

#: What each database says, in the driver's words, when it asks for the same transaction once more.
TRANSIENT: dict[str, Sequence[Callable[[], Exception]]] = {
    "sqlite": (lambda: sqlite3.OperationalError("database is locked"),),
    "postgresql": (
        lambda: psycopg.errors.SerializationFailure("could not serialize access due to concurrent update"),
        lambda: psycopg.errors.DeadlockDetected("deadlock detected"),
    ),
    "mariadb": (
        lambda: pymysql.err.OperationalError(
            1213, "Deadlock found when trying to get lock; try restarting transaction"
        ),
        lambda: pymysql.err.OperationalError(1205, "Lock wait timeout exceeded; try restarting transaction"),
    ),
}
DRIVERS = {"sqlite": "sqlite3.dbapi2", "postgresql": "psycopg", "mariadb": "pymysql"}


@pytest.fixture(scope="module", params=DATABASES)
def subject(request: pytest.FixtureRequest) -> Subject:
    return Subject(
        name=request.param,
        url=request.getfixturevalue(f"{request.param}_url"),
        open=open_store,
        empty=empty,
        lose_message=lose_message,
    )


# -- really -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("database", DATABASES)
def test_db_4_ten_that_work_on_one_table_at_once_end_every_job_once(
    database: str, request: pytest.FixtureRequest
) -> None:
    """PostgreSQL at SERIALIZABLE, the others as they come. Nobody sees an error."""
    url = request.getfixturevalue(f"{database}_url")
    mine = url + STRICT if database == "postgresql" else url
    first = open_store(url)
    first.upgrade()
    empty(url)
    failed = Event()
    ends = together(10, lambda number: _work(mine, number, failed))
    first.close()
    accepted = [id for end in ends for id in end["accepted"]]
    ended = Counter(id for end in ends for id in end["ended"])
    granted = Counter(fence for end in ends for fence in end["granted"])
    assert ended == dict.fromkeys(accepted, 1)
    assert set(granted.values()) == {1}, "one fence was given to two"


#: Rounds in which new jobs come in.
_ROUNDS = 4


def _work(url: str, number: int, failed: Event) -> dict[str, list[Any]]:
    """Do all that relays, workers and sweeps do; after some rounds only what is left to do, unless another has failed."""
    store = SqlStore(url, pool_size=1)
    draw = random.Random(number)
    seen: dict[str, list[Any]] = {"accepted": [], "granted": [], "ended": []}
    rounds = 0
    try:
        while rounds < _ROUNDS or (_busy(store) and not failed.is_set()):
            rounds += 1
            if rounds <= _ROUNDS:
                jobs = [new_job(), keyed(new_id())]
                store.enqueue(jobs)
                seen["accepted"] += [job.id for job in jobs]
            token = new_id()
            rows = store.take(token, 4, LONG)
            store.sent(token, [row.id for row in rows], LONG)
            for row in rows:
                _attempt(store, row.id, number, draw, seen)
            store.retain(5)
    except BaseException:
        failed.set()
        raise
    finally:
        store.close()
    return seen


def _busy(store: Store) -> bool:
    return bool({State.PENDING, State.SENT, State.RUNNING} & store.counts().keys())


def _attempt(store: Store, id: str, number: int, draw: random.Random, seen: dict[str, list[Any]]) -> None:
    verdict = store.claim(id, f"worker-{number}", LONG)
    assert isinstance(verdict, Granted), verdict
    seen["granted"].append((id, verdict.fence))
    assert [renewal.id for renewal in store.renew([lease_of(verdict)], LONG)] == [id]
    end = draw.choice([succeeded(verdict, keep=NONE), dead(verdict, keep=NONE), dead(verdict), retried(verdict)])
    assert store.settle(end)
    if end.state is not State.PENDING:
        seen["ended"].append(id)


def test_db_4_on_a_server_that_is_set_to_serializable_two_that_meet_wait_instead_of_failing(
    postgresql_url: str,
) -> None:
    """One try is enough: the claim waits for whoever has the row, and then takes it."""
    job, strict = new_job(), SqlStore(postgresql_url + STRICT, patience=Patience(tries=1))
    engine = create_engine(postgresql_url)
    with closing(open_store(postgresql_url)) as first, closing(strict), engine.connect() as other:
        first.upgrade()
        empty(postgresql_url)
        publish(first, job)
        strict.check()
        other.execute(text("UPDATE guard_job SET progress = 'x' WHERE id = :id"), {"id": job.id})
        with ThreadPoolExecutor(1) as pool:
            claimed = pool.submit(strict.claim, job.id, "worker-1", LONG)
            waits = (
                "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
            )
            eventually(lambda: claimed.done() or other.scalar(text(waits)))
            other.commit()
            assert isinstance(claimed.result(30), Granted)
    engine.dispose()


# -- by the driver --------------------------------------------------------------------------------------------------------


class Trouble:
    """Lets a database refuse one write, or all; used as the conformance suite uses a wire that it cuts."""

    def __init__(self, errors: Sequence[Callable[[], Exception]]) -> None:
        self._errors = errors
        self._writes = 0
        self._at: int | None = None
        self.always = False
        self.struck = 0

    def cut(self, at: int, *, answers: bool, then: Callable[[], object] = lambda: None) -> None:
        """Refuse the ``at``-th write from now; one that was refused has not happened, so ``then`` has nothing to go on from."""
        assert not answers
        self._at = self._writes + at

    def mend(self) -> bool:
        waiting, self._at = self._at is not None, None
        return waiting

    @contextmanager
    def writing(self) -> Iterator[None]:
        self._writes += 1
        if self.always or self._writes == self._at:
            self._at = None
            self.struck += 1
            raise self._errors[self.struck % len(self._errors)]()
        yield


@pytest.fixture
def troubled(subject: Subject, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Trouble, SqlStore]]:
    trouble = Trouble(TRANSIENT[subject.name])
    driver = import_module(DRIVERS[subject.name])
    monkeypatch.setattr(driver, "connect", watched(driver.connect, trouble.writing))
    opened = SqlStore(subject.url, patience=Patience(tries=3, first=0.001, cap=0.001))
    yield trouble, opened
    opened.close()


def _operations() -> Iterator[Any]:
    """How each test of the conformance suite that cuts is called, in its first cases."""
    for suite in (cut.TestCut, cut_relay.TestRelayCut, cut_people.TestPeopleCut, cut_people.TestReplaysCut):
        for name, test in vars(suite).items():
            if name.startswith("test_"):
                cases: list[dict[str, Any]] = [{}]
                for mark in getattr(test, "pytestmark", ()):
                    names, values = mark.args
                    told = [(value,) if isinstance(names, str) else value for value in values]
                    names = (names,) if isinstance(names, str) else names
                    cases = [{**case, **dict(zip(names, one, strict=True))} for case in cases for one in told]
                for number, case in enumerate(cases[:2]):
                    yield pytest.param(partial(getattr(suite(), name), **case), id=f"{name}-{number}")


@pytest.mark.parametrize("operation", [*_operations()])
def test_db_4_a_write_that_the_database_asks_for_once_more_is_repeated_with_its_whole_transaction(
    operation: Callable[..., None], store: Store, troubled: tuple[Trouble, SqlStore]
) -> None:
    """Each write of each operation, BEGIN and COMMIT included, is refused once; what comes of it is the same."""
    operation(store, troubled, False)
    assert troubled[0].struck > 0


def test_db_4_a_database_that_never_lets_a_transaction_pass_is_unavailable_and_nothing_has_happened(
    store: Store, troubled: tuple[Trouble, SqlStore]
) -> None:
    trouble, hindered = troubled
    running, waiting = new_job(), new_job()
    publish(store, running)
    accept(store, waiting)
    verdict = hindered.claim(running.id, "worker-1", LONG)
    assert isinstance(verdict, Granted)
    before = [found(store, id) for id in (running.id, waiting.id)]
    trouble.always = True
    for call in (
        lambda: hindered.claim(waiting.id, "worker-1", LONG),
        lambda: hindered.renew([lease_of(verdict)], LONG),
        lambda: hindered.settle(succeeded(verdict)),
        lambda: hindered.settle(dead(verdict)),
        lambda: hindered.take("relay-1", 10, LONG),
        lambda: hindered.retain(10),
        lambda: hindered.enqueue([new_job()]),
    ):
        with pytest.raises(StoreUnavailableError):
            call()
    assert [found(store, id) for id in (running.id, waiting.id)] == before
    assert store.counts() == {State.RUNNING: 1, State.PENDING: 1}


def test_db_4_no_body_starts_when_its_claim_could_not_be_written(
    store: Store, troubled: tuple[Trouble, SqlStore]
) -> None:
    """The error reaches the tracer, which leaves the message for redelivery; and the row says that nobody has the job."""
    trouble, hindered = troubled
    job = new_job()
    publish(store, job)
    runner = Runner(hindered, LeaseKeeper(hindered), Settings(store="sqlite://"), lambda: "worker-1")
    delivery = Delivery(
        job.id, job.task, Effective(task=job.task), "worker-1", tells_success=False, tells_failure=False
    )
    started: list[Any] = []
    trouble.always = True
    with pytest.raises(StoreUnavailableError):
        runner.run(delivery, started.append)  # type: ignore[arg-type]
    assert started == []
    row = found(store, job.id)
    assert (row.state, row.attempts, row.fence) == (State.SENT, 0, 0)


class Recorder:
    """A publisher that the broker always obeys."""

    def __init__(self) -> None:
        self.published: list[str] = []

    def publish(self, rows: Sequence[Outgoing]) -> Published:
        self.published += [row.id for row in rows]
        return Published(tuple(row.id for row in rows))

    def depth(self, queue: str) -> int | None:
        return 0

    def tell(self, row: Outgoing, error: Exception) -> bool:
        raise AssertionError("nobody is dead")


def test_db_4_nothing_is_published_of_what_could_not_be_taken(store: Store, troubled: tuple[Trouble, SqlStore]) -> None:
    trouble, hindered = troubled
    job = new_job()
    accept(store, job)
    settings, recorder = Settings(store="sqlite://"), Recorder()
    sweep = Sweep(hindered, recorder, settings, lambda name: Effective(task=name), lambda name: True, "relay-1")
    relay = Relay(hindered, recorder, sweep, settings, "relay-1")
    trouble.always = True
    with pytest.raises(StoreUnavailableError):
        relay.once()
    assert recorder.published == []
    trouble.always = False
    assert relay.once() == 1
    assert recorder.published == [job.id]


def test_db_4_in_a_callers_transaction_nothing_is_repeated_and_the_error_stays_what_it_is(
    subject: Subject, store: Store, troubled: tuple[Trouble, SqlStore]
) -> None:
    """Only the caller knows what else was in it."""
    trouble, hindered = troubled
    with Session(hindered._database.bodies) as session:
        door = hindered.door(session)
        trouble.always = True
        with pytest.raises(DBAPIError) as raised:
            door.enqueue([new_job()])
        trouble.always = False
        session.rollback()
    assert type(raised.value.orig) in {type(error()) for error in TRANSIENT[subject.name]}
    assert trouble.struck == 1
    assert store.counts() == {}


def test_db_4_a_bodys_transaction_that_cannot_be_committed_is_no_failure_of_the_body(
    store: Store, troubled: tuple[Trouble, SqlStore]
) -> None:
    """Wherever it is refused: the job stays as it was, unfinished."""
    trouble, hindered = troubled
    for at in range(1, 10):
        job = new_job()
        publish(store, job)
        verdict = hindered.claim(job.id, "worker-1", timedelta(hours=1))
        assert isinstance(verdict, Granted)
        before = found(store, job.id)
        body = hindered.begin()
        body.door.enqueue([follow := new_job()])
        trouble.cut(at, answers=False)
        try:
            body.commit(succeeded(verdict))
        except StoreUnavailableError:
            assert found(store, job.id) == before
            assert store.job(follow.id) is None
        else:
            assert trouble.mend()
            assert at > 2, "the commit was never refused"
            return
