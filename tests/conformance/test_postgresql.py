"""The conformance suite on PostgreSQL."""

from __future__ import annotations

from typing import Any

import psycopg
import pytest

from celery_guard.job.row import NewJob
from celery_guard.job.verdict import Accepted, Busy, Enqueued
from celery_guard.store import open_store
from celery_guard.store.patience import Patience
from celery_guard.store.sql import accept as acceptance
from celery_guard.store.sql.store import SqlStore
from celery_guard.testing.conformance import *  # noqa: F403
from celery_guard.testing.conformance import Callers, Subject
from celery_guard.testing.conformance.builders import keyed, new_job
from celery_guard.testing.databases import empty, lose_message


@pytest.fixture(scope="module")
def subject(postgresql_url: str) -> Subject:
    return Subject(
        name="PostgreSQL",
        url=postgresql_url,
        open=open_store,
        empty=empty,
        lose_message=lose_message,
        busy=True,
        round_trips={"enqueue": 1, "enqueue 50": 3, "claim": 1, "settle": 1, "renew": 1},
    )


@pytest.mark.parametrize("goes_on", [False, True], ids=["ends", "goes on"])
@pytest.mark.parametrize("many", [False, True], ids=["one", "many"])
def test_a_repetition_waits_for_a_key_that_an_earlier_try_may_be_taking_on_a_connection_that_is_gone(
    store: SqlStore, caller: Callers, monkeypatch: pytest.MonkeyPatch, goes_on: bool, many: bool
) -> None:
    other, jobs = caller(), [keyed("order 1"), *[new_job()] * many]
    tries: list[bool] = []
    accept = acceptance.accept

    def accepting(*given: Any, again: bool, **more: Any) -> list[Enqueued]:
        tries.append(again)
        if len(tries) == 1:
            assert store.door(other.transaction).enqueue([keyed("order 1")])
            raise psycopg.OperationalError("the connection is gone")
        answers: list[Enqueued] = accept(*given, again=again, **more)
        if not goes_on:
            other.rollback()
        return answers

    monkeypatch.setattr(acceptance, "accept", accepting)
    monkeypatch.setattr(store._database, "patience", Patience(tries=4))
    assert store.enqueue(jobs) == [Busy(jobs[0].id) if goes_on else Accepted(jobs[0].id), *map(_accepted, jobs[1:])]
    assert tries == [False, *[True] * (4 if goes_on else 2)]
    other.rollback()


def _accepted(job: NewJob) -> Accepted:
    return Accepted(job.id)
