"""A body's own transaction on Django's connection: its writes, its jobs and its job's end commit together, or not at all."""

from __future__ import annotations

import logging
import threading
from contextlib import suppress
from typing import Any
from unittest import mock

import pytest
from django.db import Error, IntegrityError, OperationalError, connection, connections, transaction
from django.test import TransactionTestCase

from celery_guard.errors import StoreUnavailableError
from celery_guard.integrations.django.testing import delete_jobs
from celery_guard.integrations.django.transaction import DjangoTransaction
from celery_guard.job.state import State
from celery_guard.job.verdict import Granted
from celery_guard.testing.conformance.builders import new_job, succeeded
from celery_guard.testing.conformance.moves import start
from tests.django.sessions import end_my_session
from tests.django.shop.celery import guard
from tests.django.shop.models import Order

store: Any = guard.store


class Transactions(TransactionTestCase):
    def setUp(self) -> None:
        self.granted: Granted = start(store)
        self.begun: list[DjangoTransaction] = []

    def tearDown(self) -> None:
        for body in self.begun:
            body.rollback()
        assert not connection.in_atomic_block
        delete_jobs()

    def begin(self) -> DjangoTransaction:
        begun = store.begin()
        assert isinstance(begun, DjangoTransaction)
        self.begun.append(begun)
        return begun

    def state(self) -> State:
        found: State = store.job(self.granted.id).state
        return found


class TestCommit(Transactions):
    def test_writes_jobs_and_the_jobs_end_commit_together(self) -> None:
        body, job = self.begin(), new_job()
        with body.session:
            Order.objects.create(number=1)
        Order.objects.create(number=2)
        body.door.enqueue([job])
        assert store.job(job.id) is None
        assert body.commit(succeeded(self.granted))
        assert self.state() is State.SUCCEEDED
        assert Order.objects.count() == 2
        assert store.job(job.id).state is State.PENDING

    def test_of_an_attempt_that_lost_its_job_nothing_is_kept(self) -> None:
        body, job = self.begin(), new_job()
        # before it writes: on SQLite nobody else could
        assert store.settle(succeeded(self.granted))
        Order.objects.create(number=1)
        body.door.enqueue([job])
        assert body.commit(succeeded(self.granted)) is False
        assert (Order.objects.count(), store.job(job.id)) == (0, None)

    def test_a_block_that_fails_is_undone_alone(self) -> None:
        body = self.begin()
        Order.objects.create(number=1)
        with suppress(IntegrityError), body.session:
            Order.objects.create(number=2)
            Order.objects.create(number=1)
        assert body.commit(succeeded(self.granted))
        assert list(Order.objects.values_list("number", flat=True)) == [1]

    def test_hooks_run_after_the_commit_and_undo_nothing(self) -> None:
        body, seen = self.begin(), []
        Order.objects.create(number=1)
        transaction.on_commit(lambda: seen.append(self.state()))
        transaction.on_commit(_fail)
        transaction.on_commit(lambda: seen.append(State.DEAD))
        with self.assertLogs("celery_guard.store", logging.ERROR):
            assert body.commit(succeeded(self.granted))
        assert (seen, self.state(), Order.objects.count()) == ([State.SUCCEEDED], State.SUCCEEDED, 1)

    def test_it_reads_what_others_have_committed(self) -> None:
        """READ COMMITTED, whatever is configured: under a stricter one each renewal of the lease is a conflict at the end."""
        if connection.vendor != "postgresql":
            self.skipTest("elsewhere the configuration says it")
        with connection.cursor() as cursor:
            cursor.execute("SET SESSION CHARACTERISTICS AS TRANSACTION ISOLATION LEVEL SERIALIZABLE")
        body = self.begin()
        with connection.cursor() as cursor:
            cursor.execute("SHOW transaction_isolation")
            assert cursor.fetchone() == ("read committed",)
        body.rollback()


class TestRollback(Transactions):
    def test_nothing_is_kept_and_the_job_is_still_running(self) -> None:
        body, job = self.begin(), new_job()
        Order.objects.create(number=1)
        body.door.enqueue([job])
        body.rollback()
        body.rollback()
        assert (Order.objects.count(), store.job(job.id), self.state()) == (0, None, State.RUNNING)

    def test_an_error_that_was_swallowed_inside_fails_the_commit(self) -> None:
        if connection.vendor != "postgresql":
            self.skipTest("only PostgreSQL refuses a transaction after its first error")
        body = self.begin()
        Order.objects.create(number=1)
        with suppress(Error), connection.cursor() as cursor:
            cursor.execute("SELECT nothing FROM nowhere")
        with pytest.raises(Error, match="aborted"):
            body.commit(succeeded(self.granted))
        assert (Order.objects.count(), self.state()) == (0, State.RUNNING)

    def test_a_transaction_that_the_body_has_given_up_is_not_committed(self) -> None:
        body = self.begin()
        Order.objects.create(number=1)
        transaction.set_rollback(True)
        with pytest.raises(transaction.TransactionManagementError):
            body.commit(succeeded(self.granted))
        assert (Order.objects.count(), self.state()) == (0, State.RUNNING)

    def test_a_connection_that_the_body_has_closed_has_kept_nothing(self) -> None:
        body = self.begin()
        Order.objects.create(number=1)
        connection.close()
        with pytest.raises((Error, StoreUnavailableError)):
            body.commit(succeeded(self.granted))
        assert (Order.objects.count(), self.state()) == (0, State.RUNNING)

    def test_a_commit_that_fails_leaves_neither_writes_nor_an_end(self) -> None:
        body = self.begin()
        Order.objects.create(number=1)
        with (
            mock.patch.object(connections["default"], "_commit", side_effect=OperationalError("no")),
            pytest.raises((OperationalError, StoreUnavailableError)),
        ):
            body.commit(succeeded(self.granted))
        assert (Order.objects.count(), self.state()) == (0, State.RUNNING)

    def test_what_the_database_has_against_the_writes_is_raised_as_it_is(self) -> None:
        if connection.vendor != "postgresql":
            self.skipTest("only PostgreSQL looks at constraints when it commits")
        with connection.cursor() as cursor:
            cursor.execute("CREATE TABLE late (id integer UNIQUE DEFERRABLE INITIALLY DEFERRED)")
        try:
            body = self.begin()
            with connection.cursor() as cursor:
                cursor.execute("INSERT INTO late VALUES (1), (1)")
            with pytest.raises(IntegrityError):
                body.commit(succeeded(self.granted))
            assert self.state() is State.RUNNING
        finally:
            with connection.cursor() as cursor:
                cursor.execute("DROP TABLE late")

    def test_a_session_that_the_server_ended_says_that_the_job_is_unfinished(self) -> None:
        if connection.vendor == "sqlite":
            self.skipTest("SQLite has no server")
        body = self.begin()
        Order.objects.create(number=1)
        end_my_session()
        with pytest.raises(StoreUnavailableError, match="could not be committed"):
            body.commit(succeeded(self.granted))
        assert (Order.objects.count(), self.state()) == (0, State.RUNNING)


class TestBegin(Transactions):
    def test_inside_an_open_transaction_it_is_refused(self) -> None:
        with transaction.atomic(), pytest.raises(RuntimeError, match=r"outside of atomic\(\)"):
            store.begin()

    def test_without_autocommit_it_is_refused(self) -> None:
        transaction.set_autocommit(False)
        try:
            with pytest.raises(RuntimeError, match=r"outside of atomic\(\)"):
                store.begin()
        finally:
            transaction.set_autocommit(True)

    def test_one_that_cannot_begin_leaves_no_block_that_nobody_would_leave(self) -> None:
        with (
            mock.patch.object(connections["default"], "on_commit", side_effect=OperationalError("gone")),
            pytest.raises(OperationalError),
        ):
            store.begin()
        assert not connection.in_atomic_block
        assert self.begin().commit(succeeded(self.granted))

    def test_in_another_thread_than_the_bodys_it_is_not_committed(self) -> None:
        begun: list[DjangoTransaction] = []
        ended = threading.Event()

        def begin() -> None:
            begun.append(self.begin())
            Order.objects.create(number=1)
            held.set()
            ended.wait(30)

        held = threading.Event()
        thread = threading.Thread(target=begin)
        thread.start()
        held.wait(30)
        with pytest.raises(RuntimeError, match="another thread"):
            begun[0].commit(succeeded(self.granted))
        ended.set()
        thread.join()
        assert (Order.objects.count(), self.state()) == (0, State.RUNNING)


def _fail() -> None:
    raise ValueError("after the commit")
