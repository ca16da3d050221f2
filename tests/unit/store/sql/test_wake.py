"""How a relay that waits is woken."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from datetime import timedelta

import pytest
from sqlalchemy import create_engine

from celery_guard.store.sql import SqlStore
from celery_guard.testing.conformance.builders import NONE, keyed, new_job, succeeded
from celery_guard.testing.conformance.moves import start, take

#: Only waited out by a test that fails.
PATIENCE = timedelta(seconds=30)


@pytest.fixture
def relay(store: SqlStore, store_url: str) -> Iterator[SqlStore]:
    """The store as another process sees it, which listens already."""
    opened = SqlStore(store_url)
    opened.wait(NONE)
    yield opened
    opened.close()


@pytest.fixture
def listening(store: SqlStore, relay: SqlStore) -> SqlStore:
    if store._traits.name != "postgresql":
        pytest.skip("only PostgreSQL calls")
    return relay


def test_a_wait_without_news_ends_with_its_time(relay: SqlStore) -> None:
    assert relay.wait(timedelta(milliseconds=5)) is False


def test_a_job_of_this_process_ends_the_wait(relay: SqlStore) -> None:
    relay.enqueue([new_job()])
    assert relay.wait(PATIENCE) is True
    relay.wait(NONE)
    assert relay.wait(NONE) is False


def test_a_wait_can_be_ended_from_another_thread(relay: SqlStore) -> None:
    waiting = threading.Thread(target=lambda: heard.append(relay.wait(PATIENCE)))
    heard: list[bool] = []
    waiting.start()
    relay.wake()
    waiting.join(PATIENCE.total_seconds())
    assert heard == [True]


def test_a_job_of_another_process_ends_the_wait(store: SqlStore, listening: SqlStore) -> None:
    store.enqueue([new_job()])
    assert listening.wait(PATIENCE) is True


def test_a_job_calls_when_the_callers_transaction_commits_and_not_before(
    store: SqlStore, listening: SqlStore, store_url: str
) -> None:
    engine = create_engine(store_url)
    with engine.begin() as connection:
        store.door(connection).enqueue([new_job()])
        assert listening.wait(timedelta(milliseconds=20)) is False
    assert listening.wait(PATIENCE) is True
    engine.dispose()


def test_what_follows_a_job_calls(store: SqlStore, listening: SqlStore) -> None:
    granted = start(store)
    while listening.wait(timedelta(milliseconds=20)):
        pass
    store.settle(succeeded(granted, follow=(new_job(),)))
    assert listening.wait(PATIENCE) is True


def test_the_end_of_a_job_calls_for_those_who_wait_for_it(store: SqlStore, listening: SqlStore) -> None:
    granted = start(store, keyed("order"))
    store.enqueue([keyed("order", in_canvas=True)])
    assert take(store) == []
    while listening.wait(timedelta(milliseconds=20)):
        pass
    store.settle(succeeded(granted))
    assert listening.wait(PATIENCE) is True


def test_without_notify_nobody_listens_and_nobody_calls(store: SqlStore, listening: SqlStore, store_url: str) -> None:
    silent = SqlStore(store_url, notify=False)
    silent.enqueue([new_job()])
    assert listening.wait(timedelta(milliseconds=20)) is False
    assert silent.wait(NONE) is True
    silent.close()


def test_a_relay_that_cannot_listen_waits_all_the_same() -> None:
    deaf = SqlStore("postgresql+psycopg://nobody@127.0.0.1:1/nowhere")
    assert deaf.wait(timedelta(milliseconds=5)) is False
    deaf.wake()
    assert deaf.wait(PATIENCE) is True
    deaf.close()


def test_a_listener_that_was_cut_off_listens_again(store: SqlStore, listening: SqlStore) -> None:
    [number] = listening._bell._connection.execute("SELECT pg_backend_pid()").fetchone()  # type: ignore[attr-defined]
    with store._database.engine.connect() as connection:
        connection.exec_driver_sql(f"SELECT pg_terminate_backend({number})")
    listening._bell._deaf_until = 0.0  # type: ignore[attr-defined]
    while listening._bell._connection.info.backend_pid == number:  # type: ignore[attr-defined]
        listening.wait(timedelta(milliseconds=20))
        listening._bell._deaf_until = 0.0  # type: ignore[attr-defined]
    while listening.wait(timedelta(milliseconds=20)):
        pass
    store.enqueue([new_job()])
    assert listening.wait(PATIENCE) is True
