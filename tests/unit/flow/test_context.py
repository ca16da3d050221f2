"""What a body asks of its job."""

from __future__ import annotations

from datetime import timedelta
from typing import Any, cast

from celery_guard.flow.context import RunningJob
from celery_guard.flow.ownership import Ownership
from celery_guard.job.verdict import Granted


def running(id: str, key: str | None = None) -> RunningJob:
    granted = Granted(
        id=id, fence=1, owner="w", generation=0, attempts=1, crashes=0, retries=0, cancel=False, remaining=None, deadline=None,
        age=timedelta(0), tenant=None, key=key, correlation_id=None, holder=None,
    )  # fmt: skip
    return RunningJob(Ownership(granted, cast(Any, None), timedelta(minutes=1), None, 0.0), cast(Any, None))


def test_a_downstream_key_is_the_jobs_and_the_calls() -> None:
    job = running("a")
    assert job.downstream_key("charge") == running("a").downstream_key("charge")
    assert job.downstream_key("charge") != job.downstream_key("mail")
    assert job.downstream_key("charge") != running("b").downstream_key("charge")


def test_jobs_of_one_key_share_their_downstream_keys_so_that_an_order_sent_again_is_charged_once() -> None:
    died, again, other = running("a", "key-7"), running("b", "key-7"), running("c", "key-8")
    assert died.downstream_key("charge") == again.downstream_key("charge") != other.downstream_key("charge")
