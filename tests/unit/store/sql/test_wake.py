"""How a relay that waits is woken."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from datetime import timedelta

import pytest
from sqlalchemy import create_engine

from celery_guard.store.sql import SqlStore, wake
from celery_guard.store.sql.statements.accept import CHANNEL
from celery_guard.testing.conformance.builders import NONE, keyed, new_job, succeeded
from celery_guard.testing.conformance.moves import start, take

#: Only waited out by a test that fails.
PATIENCE = timedelta(seconds=30)


@pytest.fixture
def relay(store: SqlStore, store_url: str) -> Iterator[SqlStore]:
    """The store as another process sees it, which listens already."""
    opened = SqlStore(store_url)
    opened.wait(NONE)
    assert opened.wait(NONE) is False
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


@pytest.fixture
def calls(store: SqlStore, store_url: str) -> Iterator[Callable[[], int]]:
    """How often somebody has called since this was asked last."""
    if store._traits.name != "postgresql":
        pytest.skip("only PostgreSQL calls")
    with closing(store._database.connect(autocommit=True)) as connection:
        connection.execute(f"LISTEN {CHANNEL}")
        yield lambda: len(list(connection.notifies(timeout=0.05)))


def _busy(listening: SqlStore, store: SqlStore) -> None:
    for _ in range(wake._BUSY):
        store.enqueue([new_job()])
        assert take(listening)


def test_nobody_calls_while_no_relay_rests(store: SqlStore, calls: Callable[[], int]) -> None:
    store.enqueue([new_job()])
    store.enqueue([new_job(), new_job()])
    assert calls() == 0


def test_a_relay_that_rests_is_called(store: SqlStore, listening: SqlStore, calls: Callable[[], int]) -> None:
    store.enqueue([new_job()])
    assert calls() == 1
    store.enqueue([new_job(), new_job()])
    assert calls() == 1


def test_a_relay_that_is_busy_is_called_no_more_and_looks_again_before_it_rests(
    store: SqlStore, listening: SqlStore, calls: Callable[[], int]
) -> None:
    _busy(listening, store)
    calls()
    store.enqueue([new_job()])
    assert calls() == 0
    while not take(listening):
        pass
    assert listening.wait(PATIENCE) is True
    store.enqueue([new_job()])
    assert calls() == 1
    assert listening.wait(PATIENCE) is True


def test_a_relay_that_takes_one_batch_between_two_rests_goes_on_being_called(
    store: SqlStore, listening: SqlStore, calls: Callable[[], int]
) -> None:
    for _ in range(2 * wake._BUSY):
        store.enqueue([new_job()])
        assert listening.wait(PATIENCE) is True
        assert take(listening)
        while listening.wait(NONE):
            pass
    assert calls() == 2 * wake._BUSY


def test_a_relay_cannot_rest_while_somebody_has_not_called_and_not_committed(
    store: SqlStore, listening: SqlStore, store_url: str
) -> None:
    _busy(listening, store)
    engine = create_engine(store_url)
    with engine.connect() as connection:
        begun = connection.begin()
        store.door(connection).enqueue([new_job()])
        # the first may be a call of before
        assert [listening.wait(PATIENCE) for _ in range(4)][1:] == [False] * 3
        begun.commit()
    assert listening.wait(PATIENCE) is True
    assert take(listening)
    engine.dispose()


def test_as_many_relays_rest_as_there_are_slots(store: SqlStore, listening: SqlStore, store_url: str) -> None:
    second, third = SqlStore(store_url), SqlStore(store_url)
    assert [second.wait(PATIENCE), third.wait(PATIENCE)] == [True, False]
    store.enqueue([new_job()])
    assert [each.wait(PATIENCE) for each in (listening, second, third)] == [True] * 3
    second.close()
    third.close()


@pytest.mark.parametrize("relays", [1, 2])
def test_no_job_waits_for_a_relay_that_sleeps(
    store: SqlStore, listening: SqlStore, store_url: str, relays: int
) -> None:
    """Senders and relays in threads, at random; a relay that is not called sleeps for half a minute, and the test says so."""
    seed = random.randrange(2**32)
    slept: list[SqlStore] = []
    stop = threading.Event()
    taken: list[str] = []

    def relay(relay: SqlStore) -> None:
        while not stop.is_set():
            ids = [row.id for row in take(relay, limit=3)]
            taken.extend(ids)
            if not ids and not relay.wait(PATIENCE) and relay._bell._rests:  # type: ignore[attr-defined]
                slept.append(relay)

    def send(number: int) -> list[str]:
        draw, engine, sender = random.Random(seed + number), create_engine(store_url), SqlStore(store_url)
        sent = []
        for _ in range(60):
            jobs = [new_job() for _ in range(draw.choice([1, 1, 2]))]
            sent += [job.id for job in jobs]
            if draw.random() < 0.5:
                sender.enqueue(jobs)
            else:
                with engine.begin() as connection:
                    sender.door(connection).enqueue(jobs)
                    stop.wait(draw.choice([0, 0.01]))
            stop.wait(draw.choice([0, 0, 0.002, 0.03]))
        sender.close()
        engine.dispose()
        return sent

    others = [SqlStore(store_url) for _ in range(relays - 1)]
    with ThreadPoolExecutor(4) as senders, ThreadPoolExecutor(2) as pool:
        threads = [pool.submit(relay, each) for each in (listening, *others)]
        sent = [id for ids in senders.map(send, range(4)) for id in ids]
        while len(taken) < len(sent) and not slept:
            assert all(not each.done() for each in threads)
        stop.set()
        for each in (listening, *others):
            each.wake()
        for done in threads:
            done.result()
    for each in others:
        each.close()
    assert not slept, f"seed {seed}"
    assert sorted(taken) == sorted(sent), f"seed {seed}"
