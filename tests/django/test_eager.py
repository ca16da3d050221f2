"""Eager mode in a Django project: the whole journey inside the transaction that is open, as in a ``TestCase``."""

from __future__ import annotations

from contextlib import suppress
from typing import Any
from unittest.mock import patch

import pytest
from django.db import connection, transaction
from django.test import TestCase, TransactionTestCase

from celery_guard.integrations.celery.runtime import runtime_of
from celery_guard.integrations.django.testing import delete_jobs, enqueued_jobs
from celery_guard.job.state import State
from tests.django.shop.celery import app, guard
from tests.django.shop.models import Order
from tests.django.shop.tasks import charge_and_fail, charge_once, charge_with_trouble


class _Undo(Exception):
    """Raised by a test to leave a block."""


def states() -> dict[str, State]:
    return {job.task.rpartition(".")[2]: job.state for job in enqueued_jobs()}


@pytest.fixture(autouse=True)
def _eagerly(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setenv("GUARD_DJANGO_MARKS", str(tmp_path / "marks"))
    app.conf.task_always_eager = True
    yield
    app.conf.task_always_eager = False


class TestEagerlyInATestCase(TestCase):
    def setUp(self) -> None:
        Order.objects.create(number=1)

    def charged(self) -> int:
        return int(Order.objects.get(number=1).charged)

    def test_a_body_runs_at_once_in_the_tests_transaction(self) -> None:
        assert charge_once.delay(1).get() == "charged"
        assert self.charged() == 1
        assert states() == {"charge_once": State.SUCCEEDED, "look_up": State.SUCCEEDED}
        assert guard.store.counts() == {}
        guard.store.close()

    def test_what_a_body_wrote_before_it_failed_is_undone_alone(self) -> None:
        Order.objects.create(number=2)
        with suppress(ValueError):
            charge_and_fail.delay(1).get()
        assert (self.charged(), Order.objects.count()) == (0, 2)
        assert states()["charge_and_fail"] is State.DEAD
        assert not connection.needs_rollback

    def test_a_block_of_the_body_that_fails_is_undone_alone(self) -> None:
        charge_with_trouble.delay(1, "undone block").get()
        assert (self.charged(), Order.objects.count()) == (1, 1)


class TestEagerlyOutsideATestCase(TransactionTestCase):
    def tearDown(self) -> None:
        delete_jobs()

    def test_a_transaction_that_rolls_back_undoes_the_job_and_what_it_did(self) -> None:
        Order.objects.create(number=1)
        with suppress(_Undo), transaction.atomic():
            charge_once.delay(1)
            assert Order.objects.get(number=1).charged == 1
            raise _Undo
        assert Order.objects.get(number=1).charged == 0
        assert guard.store.counts() == {}

    def test_outside_a_transaction_the_job_commits_by_itself(self) -> None:
        Order.objects.create(number=1)
        job = charge_once.delay(1)
        found = guard.store.job(job.id)
        assert found is not None
        assert found.state is State.SUCCEEDED
        assert Order.objects.get(number=1).charged == 1

    def test_through_a_connection_without_a_transaction_the_lease_is_kept(self) -> None:
        Order.objects.create(number=1)
        keeper = runtime_of(app).keeper
        with patch.object(keeper, "hold", wraps=keeper.hold) as hold:
            with guard.using("default"):
                job = charge_once.delay(1)
            with transaction.atomic(), guard.using("default"):
                hidden = charge_once.delay(1)
        kept = [call.args[0].id for call in hold.call_args_list]
        assert job.id in kept
        assert hidden.id not in kept
        assert Order.objects.get(number=1).charged == 2
