"""The conformance suite on PostgreSQL behind a PgBouncer that pools transactions (DB-3)."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import pytest

from celery_guard.store import open_store
from celery_guard.testing.conformance import *  # noqa: F403
from celery_guard.testing.conformance import Subject
from celery_guard.testing.databases import empty, lose_message
from celery_guard.testing.servers import private_pgbouncer


def empty_directly(direct: str, pooled: str) -> None:
    """Not through the pooler: what empties tables says on its session how long it waits."""
    empty(direct)


def lose_message_directly(direct: str, pooled: str, id: str) -> None:
    lose_message(direct, id)


@pytest.fixture(scope="module")
def subject(postgresql_url: str) -> Iterator[Subject]:
    # as many sessions as the suite ever has transactions open, which are callers that stand still
    with private_pgbouncer(postgresql_url, size=40) as pooler:
        yield Subject(
            name="PgBouncer",
            url=pooler.start().url,
            open=open_store,
            empty=partial(empty_directly, postgresql_url),
            lose_message=partial(lose_message_directly, postgresql_url),
            busy=True,
            round_trips={"enqueue": 1, "enqueue 50": 3, "claim": 1, "settle": 1, "renew": 1},
        )
