"""The conformance suite on Redis."""

from __future__ import annotations

import pytest

from celery_guard.store import open_store
from celery_guard.store.protocol import Store
from celery_guard.testing.conformance import *  # noqa: F403
from celery_guard.testing.conformance import Subject, refuse_callers
from celery_guard.testing.databases import empty


@pytest.fixture(scope="module")
def subject(redis_store_url: str) -> Subject:
    return Subject(
        name="Redis",
        url=redis_store_url,
        open=open_store,
        empty=empty,
        round_trips={"enqueue": 1, "claim": 1, "settle": 1, "renew": 1},
    )


@pytest.fixture
def caller(store: Store) -> None:
    refuse_callers(store)
