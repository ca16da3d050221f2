"""One clock, the store's: a process whose own clock is hours off changes no outcome."""

from __future__ import annotations

import datetime as dt
import sys
import time
from typing import Any

import pytest

from celery_guard.job.state import Reason
from celery_guard.job.verdict import Leased, NotDue
from celery_guard.store.protocol import Store

from .builders import LONG, NONE, SOON, new_job, retried, succeeded
from .moves import (
    accept,
    claim,
    die,
    eventually,
    found,
    lapse,
    lease_of,
    lose,
    publish,
    start,
    succeed,
    suspect,
    take,
    taken_ids,
)

__all__ = ["TestClock", "skewed"]

_Datetime = dt.datetime


@pytest.fixture(params=[-5, 5], ids=["five hours slow", "five hours fast"])
def skewed(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> dt.timedelta:
    """Have this process believe that it is five hours earlier, or later, than it is."""
    skew = dt.timedelta(hours=request.param)
    real, real_ns = time.time, time.time_ns
    monkeypatch.setattr(time, "time", lambda: real() + skew.total_seconds())
    monkeypatch.setattr(time, "time_ns", lambda: real_ns() + int(skew.total_seconds()) * 10**9)
    wrong = _skewed_datetime(skew)
    for name, module in [*sys.modules.items()]:
        if name.partition(".")[0] == "celery_guard" and getattr(module, "datetime", None) is _Datetime:
            monkeypatch.setattr(module, "datetime", wrong)
    return skew


def _skewed_datetime(skew: dt.timedelta) -> type:
    class AnyDatetime(type):
        def __instancecheck__(cls, value: object) -> bool:
            return isinstance(value, _Datetime)

    class Skewed(_Datetime, metaclass=AnyDatetime):
        @classmethod
        def now(cls, tz: dt.tzinfo | None = None) -> Any:
            return _Datetime.now(tz) + skew

        @classmethod
        def utcnow(cls) -> Any:
            return _Datetime.now(dt.timezone.utc).replace(tzinfo=None) + skew

    return Skewed


@pytest.mark.usefixtures("skewed")
class TestClock:
    def test_a_live_lease_stays_live(self, store: Store) -> None:
        granted = start(store, owner="worker-1", lease=LONG)
        assert store.lapsed(10) == []
        assert store.claim(granted.id, "worker-2", LONG) == Leased(granted.id, granted.owner)

    def test_a_lapsed_lease_is_seen(self, store: Store) -> None:
        granted, _ = lapse(store)
        assert [row.id for row in store.lapsed(10)] == [granted.id]

    def test_a_renewed_lease_stays_live(self, store: Store) -> None:
        granted = start(store, owner="worker-1", lease=SOON)
        assert store.renew([lease_of(granted)], LONG)
        other, _ = lapse(store)
        assert [row.id for row in store.lapsed(10)] == [other.id]

    def test_a_lost_job_is_due_when_the_store_says_so(self, store: Store) -> None:
        granted = lose(store)
        assert taken_ids(store) == [granted.id]

    def test_a_new_job_is_due_at_once(self, store: Store) -> None:
        job = new_job()
        accept(store, job)
        assert taken_ids(store) == [job.id]
        claim(store, job.id)

    def test_a_delayed_job_is_not_due_early(self, store: Store) -> None:
        job = new_job(delay=LONG)
        accept(store, job)
        assert take(store) == []
        assert store.claim(job.id, "worker-1", LONG) == NotDue(job.id, Reason.NEW)

    def test_a_retry_is_not_due_early(self, store: Store) -> None:
        granted = start(store)
        assert store.settle(retried(granted, delay=LONG))
        assert take(store) == []
        due = store.next_due()
        assert due is not None
        assert NONE < due <= LONG

    def test_a_retry_is_due_in_time(self, store: Store) -> None:
        granted = start(store)
        assert store.settle(retried(granted, delay=SOON))
        assert eventually(lambda: taken_ids(store)) == [granted.id]

    def test_a_deadline_is_as_far_as_was_said(self, store: Store) -> None:
        granted = start(store, new_job(deadline_in=LONG))
        assert granted.remaining is not None
        assert LONG / 2 < granted.remaining <= LONG
        assert NONE <= granted.age < LONG

    def test_a_taken_row_is_held(self, store: Store) -> None:
        accept(store, new_job())
        assert len(take(store)) == 1
        assert take(store) == []

    def test_a_message_is_not_suspect_early(self, store: Store) -> None:
        publish(store, new_job(), suspect_after=LONG)
        assert store.suspects(10) == []

    def test_a_message_becomes_suspect(self, store: Store) -> None:
        attempt = suspect(store)
        assert NONE < attempt.age <= attempt.total < LONG

    def test_a_finished_job_is_not_deleted_early(self, store: Store) -> None:
        succeed(store, keep=LONG)
        die(store, keep=LONG)
        assert store.retain(10) == 0

    def test_an_outcome_is_not_told_again_early(self, store: Store) -> None:
        assert store.settle(succeeded(start(store), told=False, tell_within=LONG))
        assert take(store) == []

    def test_a_slot_is_not_taken_over_early(self, store: Store) -> None:
        assert store.hold("relay:0", "one", LONG)
        assert store.hold("relay:0", "two", LONG) is False
        assert [beat.live for beat in store.heartbeats()] == [True]

    def test_what_people_read_is_the_stores_time(self, store: Store, skewed: dt.timedelta) -> None:
        granted = succeed(store)
        row = found(store, granted.id)
        assert row.finished is not None
        assert abs(row.created - (_Datetime.now(dt.timezone.utc) + skewed)) > LONG
        assert NONE <= row.finished - row.created < LONG
