"""The conformance suite on one node of a Redis Cluster, which refuses a script that touches a key of another slot.

The server checks that only of scripts that begin with ``#!lua``, which Redis 6 does not understand; so it is put before them here.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import redis

from celery_guard.store import open_store
from celery_guard.store.protocol import Store
from celery_guard.store.redis import scripts
from celery_guard.testing.conformance import *  # noqa: F403
from celery_guard.testing.conformance import Subject, refuse_callers
from celery_guard.testing.conformance.moves import eventually
from celery_guard.testing.databases import empty, lose_message
from celery_guard.testing.servers import PrivateServer, private_redis


@pytest.fixture(scope="module")
def node() -> Iterator[PrivateServer]:
    """A node that has all slots."""
    with private_redis("--cluster-enabled", "yes") as server:
        server.start()
        with redis.Redis.from_url(server.url) as client:
            if (version := client.info("server")["redis_version"]).startswith("6."):
                pytest.skip(f"Redis {version} does not check what a script touches")
            client.execute_command("CLUSTER ADDSLOTSRANGE", 0, 16383)
            eventually(lambda: client.execute_command("CLUSTER INFO")["cluster_state"] == "ok")
        yield server


@pytest.fixture(scope="module")
def subject(node: PrivateServer) -> Iterator[Subject]:
    plain = scripts._read
    scripts.script.cache_clear()
    scripts._read = lambda name: f"#!lua\n{plain(name)}" if name == "store" else plain(name)
    trips = {"enqueue": 1, "claim": 1, "settle": 1, "renew": 1}
    yield Subject(
        name="Redis Cluster",
        url=f"{node.url}?name=shop",
        open=open_store,
        empty=empty,
        lose_message=lose_message,
        round_trips=trips,
    )
    scripts._read = plain
    scripts.script.cache_clear()


@pytest.fixture
def caller(store: Store) -> None:
    refuse_callers(store)


def test_red_1_a_script_that_touches_another_slot_would_be_refused(node: PrivateServer) -> None:
    with redis.Redis.from_url(node.url) as client, pytest.raises(redis.ResponseError, match="same slot"):
        client.eval("#!lua\nreturn redis.call('GET', 'elsewhere')", 1, "{guard:shop}")
