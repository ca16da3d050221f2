"""The conformance suite on MariaDB."""

from __future__ import annotations

import pytest

from celery_guard.store import open_store
from celery_guard.store.protocol import Store
from celery_guard.testing.conformance import *  # noqa: F403
from celery_guard.testing.conformance import Subject
from celery_guard.testing.databases import empty, lose_message


def open_without_tls(url: str) -> Store:
    """The driver would read all of the machine's certificates for each connection, and the suite cuts hundreds."""
    return open_store(f"{url}?ssl_disabled=true")


@pytest.fixture(scope="module")
def subject(mariadb_url: str) -> Subject:
    return Subject(
        name="MariaDB",
        url=mariadb_url,
        open=open_without_tls,
        empty=empty,
        lose_message=lose_message,
        round_trips={"enqueue": 5, "claim": 4, "settle": 6, "renew": 4},
    )
