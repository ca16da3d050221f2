"""What a Redis store is in itself: its version and what is said about another one, how it is found, and how it calls."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import redis

from celery_guard.errors import StoreSchemaError
from celery_guard.job.state import State
from celery_guard.store.redis import RedisStore
from celery_guard.store.redis.version import VERSION
from celery_guard.testing.conformance.builders import LONG, new_job
from celery_guard.testing.conformance.moves import accept
from celery_guard.testing.databases import database, empty
from celery_guard.testing.servers import private_redis
from celery_guard.testing.services import REDIS


@pytest.fixture
def url() -> Iterator[str]:
    """A store that was not made yet."""
    with database(REDIS.need() + "3") as made:
        yield made


@pytest.fixture
def store(url: str) -> Iterator[RedisStore]:
    with closing(RedisStore(url)) as one:
        yield one


@pytest.fixture
def written(url: str) -> Iterator[Callable[..., Any]]:
    """Runs a command on the key that says which store this is."""
    place, _, name = url.partition("?name=")
    with ExitStack() as closing_all:
        client = closing_all.enter_context(redis.Redis.from_url(place, decode_responses=True))
        yield lambda command, *args: client.execute_command(command, f"{{guard:{name}}}:store", *args)


def test_a_store_that_was_never_made_is_said_by_all_it_is_asked(store: RedisStore) -> None:
    for ask in (store.check, store.counts, lambda: store.enqueue([new_job()])):
        with pytest.raises(StoreSchemaError, match=r"missing.*guard store upgrade"):
            ask()


def test_a_newer_store_is_refused_and_left_as_it_is(store: RedisStore, written: Callable[..., Any]) -> None:
    store.upgrade()
    written("HSET", "version", VERSION + 1)
    before = written("HGETALL")
    for ask in (store.check, store.upgrade, store.counts):
        with pytest.raises(StoreSchemaError, match="newer"):
            ask()
    assert written("HGETALL") == before


def test_an_upgrade_twice_is_one_upgrade(store: RedisStore, written: Callable[..., Any]) -> None:
    store.upgrade()
    before = written("HGETALL")
    assert {*before} == {"version", "id", "created"}
    store.upgrade()
    assert written("HGETALL") == before


def test_the_commands_for_people_who_run_their_own_make_the_same_store(
    store: RedisStore, url: str, written: Callable[..., Any]
) -> None:
    with redis.Redis.from_url(url.partition("?")[0]) as client:
        for line in store.upgrade_sql().splitlines():
            client.execute_command(*shlex.split(line))
    store.check()
    assert {*written("HGETALL")} == {"version", "id", "created"}


def test_a_store_is_found_by_its_socket(tmp_path: Path) -> None:
    with private_redis("--unixsocket", str(tmp_path / "redis.sock")) as server:
        server.start()
        with closing(RedisStore(f"unix://{tmp_path / 'redis.sock'}?db=2&name=shop")) as store:
            store.upgrade()
            accept(store, new_job())
            assert store.counts() == {State.PENDING: 1}


def test_a_relay_that_waits_is_called_by_who_enqueues(store: RedisStore, url: str) -> None:
    store.upgrade()
    assert store.wait(timedelta(0)) is False
    with closing(RedisStore(url)) as sending, ThreadPoolExecutor(1) as pool:
        heard = pool.submit(store.wait, LONG)
        accept(sending, new_job())
        assert heard.result(30) is True
        accept(sending, new_job(delay=LONG))
        assert store.wait(timedelta(0)) is False


def test_a_store_whose_url_has_no_name_is_the_one_that_is_emptied() -> None:
    with private_redis() as server, closing(RedisStore(server.start().url)) as unnamed:
        named = f"{server.url}?name=other"
        with closing(RedisStore(named)) as other:
            for each in (unnamed, other):
                each.upgrade()
                accept(each, new_job())
            empty(server.url)
            assert (unnamed.counts(), other.counts()) == ({}, {State.PENDING: 1})
            accept(unnamed, new_job())
