"""The conformance suite on SQLite."""

from __future__ import annotations

import pytest

from celery_guard.store import open_store
from celery_guard.testing.conformance import *  # noqa: F403
from celery_guard.testing.conformance import Subject
from celery_guard.testing.databases import empty, lose_message


@pytest.fixture(scope="module")
def subject(sqlite_url: str) -> Subject:
    return Subject(
        name="SQLite", url=sqlite_url, open=open_store, empty=empty, lose_message=lose_message, concurrent=False
    )
