"""A real worker on the project, with prefork and a relay, while the tests are the program that enqueues."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
import redis
from django.db import connection, connections, transaction

from celery_guard.integrations.django.testing import delete_jobs, enqueued_jobs
from celery_guard.job.row import Job
from celery_guard.job.state import State
from celery_guard.testing.services import REDIS
from tests.django.sessions import sessions
from tests.django.shop.celery import guard
from tests.django.shop.models import Order
from tests.django.shop.tasks import (
    charge_and_die_once,
    charge_and_fail,
    charge_inside_atomic,
    charge_once,
    charge_with_trouble,
    look_up,
    plain,
)
from tests.integration.fleet import Process, eventually

pytestmark = pytest.mark.integration


class _Undo(Exception):
    """Raised by a test to leave a block."""


class Shop:
    """The worker, and what its bodies have left behind."""

    def __init__(self, marks: Path, worker: Process) -> None:
        self._marks = marks
        self._worker = worker

    def marks(self) -> list[str]:
        return self._marks.read_text(encoding="utf-8").split("\n")[:-1] if self._marks.exists() else []

    def marks_of(self, *numbers: int) -> list[str]:
        """What was left behind about these orders alone: other tests share the worker."""
        return [mark for mark in self.marks() if {str(number) for number in numbers} & set(mark.split())]

    def ended(self, job_id: str) -> Job:
        """The job, once it has an end."""

        def found() -> Job | None:
            job = guard.store.job(job_id)
            return job if job is not None and job.state in _ENDED else None

        try:
            job: Job = eventually(found, what=f"the end of {job_id}")
        except AssertionError as error:
            raise AssertionError(f"{error}\n{guard.store.job(job_id)}\n{self._worker.output()}") from error
        return job

    def all_that_was_due_has_run(self) -> None:
        """A job that is enqueued now and has run: whatever was committed before it had its chance."""
        self.ended(look_up.delay(0).id)

    def charged(self, number: int) -> int:
        return int(Order.objects.get(number=number).charged)


_ENDED = {State.SUCCEEDED, State.DEAD, State.CANCELLED}


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory, databases: None) -> Iterator[Shop]:
    """One worker for all tests here, which count by order or job."""
    folder = tmp_path_factory.mktemp("worker")
    queue, broker = os.environ["GUARD_DJANGO_QUEUE"], REDIS.need() + "1"
    environment = {
        **os.environ,
        "GUARD_DJANGO_NAME": str(connection.settings_dict["NAME"]),
        "GUARD_DJANGO_BROKER": broker,
        "GUARD_DJANGO_MARKS": str(folder / "marks"),
    }
    command = [
        sys.executable, "-m", "celery", "-A", "tests.django.shop", "worker", "-c", "2", "-n", f"{queue}@test", "-l", "INFO",
        "--without-gossip", "--without-mingle", "--without-heartbeat",
    ]  # fmt: skip
    started = Process(command, environment, folder / "log")
    try:
        started.says(" ready.")
        yield Shop(folder / "marks", started)
    finally:
        started.kill()
        with redis.Redis.from_url(broker) as client:
            for key in client.scan_iter(f"{queue}:*", count=1000):
                client.delete(key)
        delete_jobs()
        Order.objects.all().delete()
        connections.close_all()


def placed(number: int) -> int:
    Order.objects.create(number=number)
    return number


def test_out_1_django_a_job_starts_after_atomic_commits_and_finds_its_row(shop: Shop) -> None:
    with transaction.atomic():
        placed(101)
        first = look_up.delay(101)
        with suppress(_Undo), transaction.atomic():
            placed(102)
            undone = look_up.delay(102)
            raise _Undo
        with transaction.atomic(), transaction.atomic():
            placed(103)
            third = look_up.delay(103)
        assert [job.id for job in enqueued_jobs() if job.id in (first.id, undone.id, third.id)] == [first.id, third.id]
        assert all(guard.store.job(job.id) is None for job in (first, undone, third))
    for job in (first, third):
        assert shop.ended(job.id).attempts == 1
    shop.all_that_was_due_has_run()
    assert sorted(shop.marks_of(101, 102, 103)) == ["order 101 found", "order 103 found"]
    assert guard.store.job(undone.id) is None


def test_out_1_django_a_transaction_that_rolls_back_starts_nothing(shop: Shop) -> None:
    with suppress(_Undo), transaction.atomic():
        # a write first: SQLite refuses one after a read while the relay writes, as the how-to says
        placed(111)
        with guard.using("default"):
            jobs = [look_up.delay(111), plain.delay("111")]
            raise _Undo
    shop.all_that_was_due_has_run()
    assert shop.marks_of(111) == []
    assert [guard.store.job(job.id) for job in jobs] == [None, None]


def test_out_1_django_outside_atomic_a_job_is_committed_at_once(shop: Shop) -> None:
    placed(121)
    assert shop.ended(look_up.delay(121).id).state is State.SUCCEEDED
    assert shop.marks_of(121) == ["order 121 found"]


def test_what_a_body_writes_with_the_orm_in_the_jobs_transaction_commits_with_its_job(shop: Shop) -> None:
    job = charge_once.delay(placed(201))
    assert shop.ended(job.id).state is State.SUCCEEDED
    assert shop.charged(201) == 1
    eventually(lambda: shop.marks().count("order 201 found") == 1)


def test_what_a_body_wrote_with_the_orm_before_it_was_killed_happens_once(shop: Shop) -> None:
    job = charge_and_die_once.delay(placed(211))
    ended = shop.ended(job.id)
    assert (ended.state, ended.attempts) == (State.SUCCEEDED, 2)
    assert shop.marks().count("charging 211") == 2
    assert shop.charged(211) == 1
    eventually(lambda: "order 211 found" in shop.marks(), what="the job that was enqueued with the writes has run")
    shop.all_that_was_due_has_run()
    assert shop.marks().count("order 211 found") == 1


def test_what_a_body_wrote_with_the_orm_before_it_failed_is_undone(shop: Shop) -> None:
    job = charge_and_fail.delay(placed(221))
    assert shop.ended(job.id).state is State.DEAD
    shop.all_that_was_due_has_run()
    assert (shop.charged(221), shop.marks().count("order 221 found")) == (0, 0)


@pytest.mark.parametrize(
    ("number", "trouble", "state", "charged"),
    [
        (231, "undone block", State.SUCCEEDED, 1),
        (232, "nested", State.SUCCEEDED, 2),
        (233, "hook fails", State.SUCCEEDED, 1),
        (234, "closed", State.DEAD, 0),
        (235, "swallowed", State.DEAD, 0),
    ],
)
def test_a_body_in_the_jobs_transaction_meets_trouble(
    shop: Shop, number: int, trouble: str, state: State, charged: int
) -> None:
    if trouble == "swallowed" and connection.vendor != "postgresql":
        pytest.skip("only PostgreSQL refuses a transaction after its first error")
    job = charge_with_trouble.delay(placed(number), trouble)
    assert shop.ended(job.id).state is state
    assert shop.charged(number) == charged


def test_the_jobs_transaction_inside_atomic_is_refused_and_says_why(shop: Shop) -> None:
    job = charge_inside_atomic.delay(placed(241))
    ended = shop.ended(job.id)
    assert ended.state is State.DEAD
    assert "outside of atomic()" in ended.failures[0].message
    assert shop.charged(241) == 0


def test_a_worker_leaves_no_connection_of_djangos_open(shop: Shop) -> None:
    """Celery closes Django's connections between two jobs; those that are left are the guard's own pool."""
    if connection.vendor != "postgresql":
        pytest.skip("PostgreSQL lists its sessions")
    shop.ended(charge_once.delay(placed(251)).id)
    after_one = sessions()
    for number in range(252, 262):
        shop.ended(charge_once.delay(placed(number)).id)
    assert sessions() <= after_one + 2
