"""What users' own tests see: jobs inside a ``TestCase`` and a ``TransactionTestCase``, and how to ask for them."""

from __future__ import annotations

import os
import unittest

import pytest
from django.db import connection, transaction
from django.test import TestCase, TransactionTestCase

from celery_guard.errors import NotGuardedError
from celery_guard.integrations.django.testing import delete_jobs, enqueued_jobs
from celery_guard.job.state import State
from tests.django.shop.celery import guard
from tests.django.shop.models import Order
from tests.django.shop.tasks import charge, look_up

QUEUE = os.environ["GUARD_DJANGO_QUEUE"]


def place(number: int) -> None:
    """The code of a user's that is tested."""
    with transaction.atomic():
        Order.objects.create(number=number)
        charge.delay(number=number)


class TestInATestCase(TestCase):
    def test_a_job_that_was_enqueued_can_be_asked_for(self) -> None:
        with self.captureOnCommitCallbacks() as callbacks:
            place(1)
            look_up.delay(2)
        [charged] = enqueued_jobs(charge)
        assert (charged.task, charged.kwargs, charged.args, charged.queue) == (charge.name, {"number": 1}, [], QUEUE)
        assert charged.state is State.PENDING
        assert [job.args for job in enqueued_jobs("tests.django.shop.tasks.look_up")] == [[2]]
        assert len(enqueued_jobs()) == 2
        assert callbacks == []

    def test_nothing_reaches_the_relay(self) -> None:
        if connection.vendor == "sqlite":
            self.skipTest("nobody else can write while the test's transaction does")
        place(1)
        assert guard.store.counts() == {}
        assert guard.relay().drain() == 0
        guard.store.close()


class _Leaves(TestCase):
    def test(self) -> None:
        place(1)
        assert len(enqueued_jobs()) == 1


class TestAfterATestCase(TransactionTestCase):
    def tearDown(self) -> None:
        delete_jobs()

    def test_nothing_is_left(self) -> None:
        result = unittest.TestResult()
        unittest.defaultTestLoader.loadTestsFromTestCase(_Leaves).run(result)
        assert result.testsRun == 1
        assert result.wasSuccessful(), result.failures + result.errors
        assert guard.store.counts() == {}

    def test_a_transaction_test_case_commits_and_delete_jobs_cleans_up(self) -> None:
        place(1)
        assert guard.store.counts() == {State.PENDING: 1}
        delete_jobs()
        assert enqueued_jobs() == []
        assert guard.store.counts() == {}
        guard.store.check()
        assert charge.delay(number=1).duplicate is False

    def test_what_is_no_store_of_djangos_is_said(self) -> None:
        from celery_guard.integrations.celery.runtime import runtime_of

        runtime = runtime_of(guard.app)
        kept = runtime.__dict__.pop("store")
        runtime.__dict__["store"] = object()
        try:
            with pytest.raises(NotGuardedError, match="django://default"):
                enqueued_jobs()
        finally:
            runtime.__dict__["store"] = kept
