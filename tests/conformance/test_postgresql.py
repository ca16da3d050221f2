"""The conformance suite on PostgreSQL."""

from __future__ import annotations

import pytest

from celery_guard.store import open_store
from celery_guard.testing.conformance import *  # noqa: F403
from celery_guard.testing.conformance import Subject
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
