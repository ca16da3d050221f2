"""Jobs that are enqueued on Django's connections: with the transaction that is open there, or not at all."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, ClassVar

import pytest
from django.db import Error, IntegrityError, connection, connections, transaction
from django.test import TransactionTestCase
from django.test.utils import CaptureQueriesContext
from sqlalchemy import make_url

from celery_guard import KeyConflict, WrongDatabaseError
from celery_guard.integrations.django.testing import delete_jobs, enqueued_jobs
from celery_guard.store import open_store
from celery_guard.store.sql import SqlStore
from tests.django.sessions import end_my_session
from tests.django.shop.celery import guard
from tests.django.shop.models import Order
from tests.django.shop.tasks import charge, look_up, plain


class _Undo(Exception):
    """Raised by a test to leave a block."""


def committed() -> list[Any]:
    """The arguments of all jobs that others can see, the oldest first."""
    return [job.id for job in reversed(guard.store.jobs())]


class Doors(TransactionTestCase):
    databases: ClassVar = {"default", "other"}

    def tearDown(self) -> None:
        delete_jobs()


class TestInsideAtomic(Doors):
    def test_a_job_goes_with_the_transaction(self) -> None:
        with transaction.atomic():
            Order.objects.create(number=1)
            job = look_up.delay(1)
            assert [found.id for found in enqueued_jobs()] == [job.id]
            assert committed() == []
        assert committed() == [job.id]

    def test_a_transaction_that_rolls_back_leaves_no_job(self) -> None:
        with suppress(_Undo), transaction.atomic():
            look_up.delay(1)
            charge.delay(number=1)
            raise _Undo
        assert committed() == []
        assert charge.delay(number=1).duplicate is False

    def test_nested_savepoints_take_their_jobs_with_them(self) -> None:
        kept = []
        with transaction.atomic():
            kept.append(look_up.delay(1).id)
            with suppress(_Undo), transaction.atomic():
                look_up.delay(2)
                with transaction.atomic():
                    look_up.delay(3)
                raise _Undo
            with transaction.atomic():
                with suppress(_Undo), transaction.atomic():
                    look_up.delay(4)
                    raise _Undo
                kept.append(look_up.delay(5).id)
        assert sorted(committed()) == sorted(kept)

    def test_a_transaction_without_autocommit_is_open_too(self) -> None:
        transaction.set_autocommit(False)
        try:
            undone = look_up.delay(1)
            transaction.rollback()
            kept = look_up.delay(2)
            transaction.commit()
        finally:
            transaction.set_autocommit(True)
        assert committed() == [kept.id] != [undone.id]

    def test_many_go_with_the_transaction(self) -> None:
        with transaction.atomic():
            jobs = look_up.enqueue_many([[1], [2]])
            assert committed() == []
        assert sorted(committed()) == sorted(job.id for job in jobs)

    def test_a_duplicate_and_a_conflict_leave_the_transaction_usable(self) -> None:
        first = charge.delay(number=1)
        with transaction.atomic():
            Order.objects.create(number=1)
            again = charge.delay(number=1)
            with pytest.raises(KeyConflict):
                charge.delay(number=1, amount=2)
            own = charge.delay(number=2)
            assert charge.delay(number=2).id == own.id
            Order.objects.create(number=2)
        assert (again.id, again.duplicate) == (first.id, True)
        assert Order.objects.count() == 2
        assert sorted(committed()) == sorted([first.id, own.id])

    def test_nothing_is_begun_ended_or_marked_by_the_guard(self) -> None:
        with transaction.atomic():
            look_up.delay(0)
            with CaptureQueriesContext(connection) as queries:
                look_up.delay(1)
                charge.delay(number=1)
        # after what MariaDB alone reads
        words = {query["sql"].rpartition("*/")[2].split()[0].upper() for query in queries}
        assert words <= {"INSERT", "SELECT", "WITH", "UPDATE", "DELETE"}
        if connection.vendor == "postgresql":
            assert len(queries) == 2

    def test_a_task_without_a_guard_is_celerys_own_affair(self) -> None:
        with suppress(_Undo), transaction.atomic():
            plain.delay("at once")
            assert enqueued_jobs() == []
            raise _Undo

    def test_using_takes_tasks_without_a_guard_along(self) -> None:
        with transaction.atomic(), guard.using("default"):
            carried = plain.delay("later")
            assert committed() == []
        assert committed() == [carried.id]

    def test_a_broken_transaction_says_so_itself(self) -> None:
        with transaction.atomic():
            with suppress(IntegrityError), transaction.atomic(savepoint=False):
                Order.objects.create(number=1)
                Order.objects.create(number=1)
            with pytest.raises(transaction.TransactionManagementError):
                look_up.delay(1)
        assert committed() == []

    def test_what_the_database_says_goes_up_as_djangos_error(self) -> None:
        if connection.vendor != "postgresql":
            self.skipTest("only PostgreSQL refuses a transaction after its first error")
        with transaction.atomic():
            with suppress(Error), connection.cursor() as cursor:
                cursor.execute("SELECT nothing")
            with pytest.raises(Error, match="aborted"):
                look_up.delay(1)

    def test_delay_on_commit_is_a_row_of_the_transaction(self) -> None:
        with suppress(_Undo), transaction.atomic():
            look_up.delay_on_commit(1)
            assert len(enqueued_jobs()) == 1
            assert connection.run_on_commit == []
            raise _Undo
        assert committed() == []


class TestOutsideAtomic(Doors):
    def test_a_job_is_committed_at_once(self) -> None:
        for send in (look_up.delay, look_up.delay_on_commit, look_up.using("default").delay):
            job = send(1)
            assert committed() == [job.id]
            delete_jobs()

    def test_many_are_one_transaction(self) -> None:
        jobs = charge.enqueue_many([{"number": 1}, {"number": 2}, {"number": 1, "amount": 5}])
        assert [type(job.answer).__name__ for job in jobs] == ["Accepted", "Accepted", "Conflict"]
        assert sorted(committed()) == sorted(job.id for job in jobs[:2])

    def test_a_process_that_works_with_django_and_enqueues_opens_no_other_connection(self) -> None:
        Order.objects.create(number=1)
        look_up.delay(1)
        with transaction.atomic():
            charge.delay(number=1)
        pool: Any = guard.store._database.engine.pool  # type: ignore[attr-defined]
        assert pool.checkedin() + pool.checkedout() == 0

    def test_a_thread_without_a_connection_of_djangos_gets_none(self) -> None:
        found: list[bool] = []

        def enqueue() -> None:
            look_up.delay(1)
            found.append(connections["default"].connection is None)

        thread = threading.Thread(target=enqueue)
        thread.start()
        thread.join()
        assert found == [True]
        assert len(committed()) == 1

    def test_a_connection_that_the_server_closed_is_opened_again(self) -> None:
        if connection.vendor == "sqlite":
            self.skipTest("SQLite has no server")
        end_my_session()
        job = look_up.delay(1)
        assert committed() == [job.id]


class TestUsing(Doors):
    def test_an_alias_a_connection_and_what_stands_for_one_are_doors(self) -> None:
        for given in ("default", connections["default"], connection):
            with transaction.atomic():
                job = look_up.using(given).delay(1)
                assert committed() == []
            assert committed() == [job.id]
            delete_jobs()

    def test_a_database_without_a_store_is_refused(self) -> None:
        for given in ("other", connections["other"]):
            with transaction.atomic(using="other"), pytest.raises(WrongDatabaseError, match="not the store's"):
                look_up.using(given)
        assert committed() == []

    def test_another_store_is_refused(self) -> None:
        with _upgraded("other") as other:
            for _ in range(2):
                with transaction.atomic(using="other"), pytest.raises(WrongDatabaseError, match="it is store"):
                    look_up.using("other")
            assert other.counts() == {}

    def test_an_alias_that_is_none_is_refused(self) -> None:
        with pytest.raises(WrongDatabaseError, match=r"no such alias; it has 'default', 'other'"):
            look_up.using("archive")

    def test_what_is_of_djangos_and_no_connection_is_refused(self) -> None:
        with pytest.raises(TypeError, match=r"no door for QuerySet"):
            look_up.using(Order.objects.all())

    def test_a_store_that_is_named_by_its_url_has_the_same_door(self) -> None:
        from celery_guard.integrations.django.door import door_of
        from celery_guard.testing.conformance.builders import new_job

        store = SqlStore(_url("default"))
        with transaction.atomic():
            door_of(store, "default").enqueue([new_job()])
        assert len(committed()) == 1
        with transaction.atomic(using="other"), pytest.raises(WrongDatabaseError):
            door_of(store, "other")
        store.close()

    def test_a_database_of_another_kind_is_refused(self) -> None:
        from celery_guard.integrations.django.door import door_of

        url = "sqlite:///:memory:" if connection.vendor != "sqlite" else "postgresql+psycopg://nobody@127.0.0.1/none"
        with pytest.raises(WrongDatabaseError, match="the store is on a"):
            door_of(open_store(url), "default")


def _url(alias: str) -> str:
    from celery_guard.integrations.django.address import shown_url, wrapper

    settings = wrapper(alias).settings_dict
    asked: dict[str, Any] = {
        "username": settings["USER"],
        "password": settings["PASSWORD"],
        "port": int(settings["PORT"] or 0),
    }
    url = make_url(shown_url(alias)).set(**{name: value for name, value in asked.items() if value})
    return url.render_as_string(hide_password=False)


class _upgraded:
    """A store of its own in another of Django's databases, for as long as the block."""

    def __init__(self, alias: str) -> None:
        self._store = SqlStore(_url(alias))
        self._alias = alias

    def __enter__(self) -> SqlStore:
        self._store.upgrade()
        return self._store

    def __exit__(self, *_: object) -> None:
        self._store.close()
        with connections[self._alias].cursor() as cursor:
            names: Sequence[str] = connections[self._alias].introspection.table_names(cursor)
            for name in names:
                if name.startswith("guard_"):
                    cursor.execute(f"DROP TABLE {name}")
