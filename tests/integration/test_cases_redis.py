"""A store on a Redis that evicts, is full, dies, fails over, or is one node of a cluster: RED-1.

Every server is the test's own. What a test waits for is what the server says, never a time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from datetime import timedelta
from threading import Event
from typing import Any, cast

import pytest
import redis
from redis.connection import Connection

from celery_guard.contract.server import server_findings
from celery_guard.errors import StoreSchemaError, StoreUnavailableError
from celery_guard.job.state import State
from celery_guard.job.verdict import Granted, Missing
from celery_guard.store.patience import Patience
from celery_guard.store.protocol import Store
from celery_guard.store.redis import RedisStore
from celery_guard.testing.conformance.builders import (
    LONG,
    keyed,
    new_id,
    new_job,
    recovered,
    retried,
    succeeded,
)
from celery_guard.testing.conformance.moves import (
    accept,
    die,
    eventually,
    found,
    lapse,
    lease_of,
    start,
    succeed,
    suspect,
    taken_ids,
)
from celery_guard.testing.servers import PrivateServer, private_redis, private_sentinel

pytestmark = pytest.mark.integration

#: Refusals are said at once.
SHORT = Patience(tries=2, first=0.001, cap=0.001)

JOB = "{guard:main}:job:"


@pytest.fixture
def closing_all() -> Iterator[ExitStack]:
    with ExitStack() as closing_all:
        yield closing_all


@pytest.fixture
def serve(closing_all: ExitStack) -> Callable[..., PrivateServer]:
    return lambda *options: closing_all.enter_context(closing_all.enter_context(private_redis(*options)))


@pytest.fixture
def opened(closing_all: ExitStack) -> Callable[..., RedisStore]:
    def opened(url: str, patience: Patience | None = None) -> RedisStore:
        store = closing_all.enter_context(closing(RedisStore(url, patience=patience)))
        store.upgrade()
        return store

    return opened


@pytest.fixture
def client(closing_all: ExitStack) -> Callable[[PrivateServer], redis.Redis]:
    return lambda server: closing_all.enter_context(redis.Redis.from_url(server.url))


# -- what the server is set to ----------------------------------------------------------------------------------------

_KEPT = ("--appendonly", "yes", "--appendfsync", "always")


@pytest.mark.parametrize(
    ("options", "codes"),
    [
        (_KEPT, []),
        ((), [("CHECK-512", "warning")]),
        (("--appendonly", "yes"), [("CHECK-512", "info")]),
        ((*_KEPT, "--maxmemory-policy", "allkeys-lru", "--maxmemory", "50mb"), [("CHECK-511", "error")]),
        ((*_KEPT, "--maxmemory-policy", "volatile-lru", "--maxmemory", "50mb"), [("CHECK-511", "warning")]),
    ],
    ids=["keeps all", "keeps no log", "a second behind", "evicts", "evicts what expires"],
)
def test_red_1_a_server_that_may_evict_or_forget_is_named(
    serve: Any, opened: Any, options: tuple[str, ...], codes: list[tuple[str, str]]
) -> None:
    store = opened(serve(*options).url)
    assert [(one.code, one.severity.value) for one in server_findings(store.server())] == codes


def test_red_1_a_server_that_does_not_say_is_named(serve: Any, opened: Any, client: Any) -> None:
    server = serve()
    opened(server.url)
    client(server).execute_command("ACL SETUSER", "shop", "on", ">pw", "~{guard:main}*", "+@all", "-info", "-config")
    with closing(RedisStore(server.url.replace("//", "//shop:pw@"))) as store:
        store.check()
        [finding] = server_findings(store.server())
    assert (finding.code, "maxmemory-policy" in finding.found) == ("CHECK-513", True)


# -- full -------------------------------------------------------------------------------------------------------------


def _granted(store: Store) -> Granted:
    return start(store, keyed(new_id()))


def _taken(store: Store) -> list[str]:
    accept(store, new_job())
    return taken_ids(store, token="relay")


_WRITES: dict[str, tuple[Callable[[Store], Any], Callable[[Store, Any], Any]]] = {
    "enqueue": (lambda store: new_job(), lambda store, job: store.enqueue([job, keyed("order")])),
    "claim": (lambda store: suspect(store).id, lambda store, id: store.claim(id, "w", LONG)),
    "renew": (_granted, lambda store, granted: store.renew([lease_of(granted)], LONG)),
    "settle": (_granted, lambda store, granted: store.settle(succeeded(granted, follow=(new_job(),)))),
    "settle, to be repeated": (_granted, lambda store, granted: store.settle(retried(granted, delay=LONG))),
    "take": (lambda store: accept(store, new_job()), lambda store, _: store.take("relay", 10, LONG)),
    "sent": (_taken, lambda store, ids: store.sent("relay", ids, LONG)),
    "recover": (lambda store: lapse(store)[1], lambda store, attempt: store.recover(attempt, recovered(attempt))),
    "defer": (suspect, lambda store, attempt: store.defer([attempt], LONG)),
    "cancel": (lambda store: accept(store, new_job(id="one")), lambda store, _: store.cancel("one")),
    "replay": (lambda store: die(store).id, lambda store, id: store.replay([id])),
    "hold": (lambda store: None, lambda store, _: store.hold("relay:0", "one", LONG)),
    "told": (
        lambda store: succeed(store, told=False),
        lambda store, granted: store.told([(granted.id, granted.fence)]),
    ),
}


def everything(boss: Any) -> dict[bytes, bytes]:
    """What a server has, key by key."""
    return {key: boss.dump(key) for key in boss.scan_iter()}


@pytest.mark.parametrize("operation", _WRITES)
def test_red_1_a_full_server_refuses_a_write_as_a_whole(serve: Any, opened: Any, client: Any, operation: str) -> None:
    server = serve()
    store, boss = opened(server.url, SHORT), client(server)
    prepare, write = _WRITES[operation]
    given = prepare(store)
    before = everything(boss)
    boss.config_set("maxmemory", 1)
    with pytest.raises(StoreUnavailableError, match="memory"):
        write(store, given)
    assert everything(boss) == before
    boss.config_set("maxmemory", 0)
    assert write(store, given) not in (False, 0, [])
    assert everything(boss) != before


def test_red_1_a_full_server_still_forgets_what_is_over(serve: Any, opened: Any, client: Any) -> None:
    server = serve()
    store, boss = opened(server.url, SHORT), client(server)
    granted = succeed(store, keep=timedelta(0))
    boss.config_set("maxmemory", 1)
    assert eventually(lambda: store.retain(10)) == 1
    assert store.job(granted.id) is None


@pytest.mark.parametrize("late", [True, False], ids=["late acks", "early acks"])
def test_red_1_a_full_server_lets_no_body_start_and_no_job_be_lost(
    serve: Any, client: Any, make_fleet: Callable[..., Any], late: bool
) -> None:
    """With late acks the message itself is delivered again; with early ones it is gone, and the row brings the job back."""
    server = serve()
    fleet = make_fleet("redis-redis", own_store=f"{server.url}?name=full", task_acks_late=late)
    results = [fleet.app.add.delay(number, 1) for number in range(3)]
    assert fleet.app.guard.relay().drain() == 3
    client(server).config_set("maxmemory", 1)
    worker = fleet.worker(CELERY_GUARD_RELAY="false")
    worker.says(f"job {results[0].id}: the store could not be reached, the job stays unfinished")
    assert (fleet.marks(), {fleet.state(result.id) for result in results}) == ([], {"sent"})
    client(server).config_set("maxmemory", 0)
    if not late:
        fleet.relay()
    assert [result.get(timeout=60) for result in results] == [1, 2, 3]
    fleet.all_quiet()
    assert fleet.counted() == {"add": 3}


# -- evicted ----------------------------------------------------------------------------------------------------------


def test_red_1_a_lease_that_was_evicted_is_a_lost_lease(serve: Any, opened: Any, client: Any) -> None:
    server = serve()
    store, boss = opened(server.url), client(server)
    granted = start(store, keyed("order"))
    boss.delete(JOB + granted.id)
    assert store.renew([lease_of(granted)], LONG) == []
    assert store.settle(succeeded(granted)) is False
    assert store.claim(granted.id, "worker-2", LONG) == Missing(granted.id)
    assert (store.take("relay", 10, LONG), store.lapsed(10), store.jobs()) == ([], [], [])
    accept(store, keyed("order", "another amount"))


def test_red_1_a_store_that_was_evicted_is_refused_and_no_lease_in_it_passes_for_one(
    serve: Any, opened: Any, client: Any
) -> None:
    """Really evicted, by whatever comes in, until the lease is gone; the rest of the store may be gone with it."""
    server = serve("--maxmemory-policy", "allkeys-lru")
    store, boss = opened(server.url), client(server)
    granted = start(store)
    boss.config_set("maxmemory", boss.info("memory")["used_memory"] + 500_000)
    for number in range(200_000):
        boss.set(f"junk {number}", b"x" * 1000)
        if not boss.exists(JOB + granted.id):
            break
    else:
        pytest.fail("the lease was not evicted")
    assert _lost(lambda: store.renew([lease_of(granted)], LONG))
    assert _lost(lambda: store.settle(succeeded(granted)))


def _lost(write: Callable[[], object]) -> bool:
    """Whether a lease does not pass for one: it is not there, or not even the store is."""
    try:
        return not write()
    except StoreSchemaError as error:
        return "has lost what it kept" in str(error)


def test_red_1_nothing_of_the_store_expires_so_volatile_policies_leave_it_alone(
    serve: Any, opened: Any, client: Any
) -> None:
    server = serve("--maxmemory-policy", "volatile-lru")
    store, boss = opened(server.url, SHORT), client(server)
    running, done = start(store, keyed("order 1")), succeed(store, keyed("order 2"))
    boss.config_set("maxmemory", boss.info("memory")["used_memory"] + 500_000)
    for number in range(3000):
        boss.set(f"junk {number}", b"x" * 1000, ex=3600)
    assert boss.info("stats")["evicted_keys"] > 0
    assert store.renew([lease_of(running)], LONG)
    assert found(store, done.id).state is State.SUCCEEDED
    assert store.settle(succeeded(running))


# -- dies and fails over ----------------------------------------------------------------------------------------------


def test_a_settlement_waits_through_the_restart_of_its_server(serve: Any, opened: Any) -> None:
    server = serve("--appendonly", "yes", "--appendfsync", "always")
    store = opened(server.url)
    granted, waiting = start(store), new_job()
    accept(store, waiting)
    server.kill()
    server.start()
    assert store.settle(succeeded(granted)) is True
    assert taken_ids(store) == [waiting.id]


def test_a_replica_that_was_a_primary_refuses_and_the_refusal_is_said(serve: Any, opened: Any, client: Any) -> None:
    server = serve()
    store, boss = opened(server.url, SHORT), client(server)
    granted = start(store)
    boss.execute_command("REPLICAOF", "127.0.0.1", 1)
    with pytest.raises(StoreUnavailableError, match="read only"):
        store.settle(succeeded(granted))
    boss.execute_command("REPLICAOF", "NO", "ONE")
    assert store.settle(succeeded(granted)) is True


def test_a_server_that_another_script_keeps_busy_is_waited_for(serve: Any, opened: Any, client: Any) -> None:
    server = serve("--lua-time-limit", "1")
    store, boss = opened(server.url), client(server)
    job = new_job()
    accept(store, job)
    boss.connection_pool.get_connection().send_command("EVAL", "while true do end", 0)
    hasty = RedisStore(server.url, patience=SHORT)
    with closing(hasty), pytest.raises(StoreUnavailableError, match=r"(?i)busy"):
        eventually(lambda: hasty.outcome(job.id) is None)
    boss.execute_command("SCRIPT KILL")
    assert isinstance(store.claim(job.id, "worker-1", LONG), Granted)


class _Struck(Exception):
    """What a signal raises, such as a soft limit in a body that enqueues."""


def test_an_answer_that_was_interrupted_is_nobody_elses(
    serve: Any, opened: Any, client: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Struck between its question and its answer, while the server has yet to say it; the next one asks meanwhile."""
    server = serve()
    store, boss = opened(server.url), client(server)
    if boss.info("server")["redis_version"].startswith("6.0."):
        pytest.skip("Redis before 6.2 pauses everybody or nobody")
    granted = start(store)
    asked, connection = Event(), cast(Any, Connection)
    read, send = connection.read_response, connection.send_command

    def struck(*_: Any, **__: Any) -> None:
        monkeypatch.setattr(Connection, "read_response", read)
        raise _Struck

    def noted(*args: Any, **given: Any) -> None:
        send(*args, **given)
        asked.set()

    boss.client_pause(600_000, all=False)  # scripts, that is
    monkeypatch.setattr(Connection, "read_response", struck)
    with pytest.raises(_Struck):
        store.job(granted.id)
    monkeypatch.setattr(Connection, "send_command", noted)
    with ThreadPoolExecutor(1) as pool:
        counts = pool.submit(store.counts)
        assert asked.wait(30)
        boss.client_unpause()
        assert counts.result(30) == {State.RUNNING: 1}


def test_a_primary_that_sentinels_replace_is_found_again(
    serve: Any, opened: Any, client: Any, closing_all: ExitStack
) -> None:
    primary, replica = serve(), serve()
    client(replica).execute_command("REPLICAOF", "127.0.0.1", primary.port)
    eventually(lambda: client(replica).info("replication").get("master_link_status") == "up")
    sentinel = closing_all.enter_context(closing_all.enter_context(private_sentinel(primary, "shop")))
    store = opened(sentinel.url)
    granted, waiting = start(store), new_job()
    accept(store, waiting)
    asked = closing_all.enter_context(redis.Redis(port=sentinel.port))
    eventually(lambda: asked.sentinel_slaves("shop"))
    assert client(primary).wait(1, 10_000) == 1
    primary.kill()
    eventually(lambda: asked.sentinel_get_master_addr_by_name("shop")[1] == replica.port)
    assert store.settle(succeeded(granted)) is True
    assert taken_ids(store) == [waiting.id]


# -- a cluster ----------------------------------------------------------------------------------------------------------


@pytest.fixture
def shards(serve: Any, client: Any) -> list[PrivateServer]:
    """Three nodes, each with a third of the slots."""
    nodes = [serve("--cluster-enabled", "yes") for _ in range(3)]
    for number, node in enumerate(nodes):
        client(node).execute_command("CLUSTER ADDSLOTS", *range(number * 5462, min(16384, number * 5462 + 5462)))
        client(node).execute_command("CLUSTER MEET", "127.0.0.1", nodes[0].port)
    for node in nodes:
        eventually(lambda node=node: client(node).execute_command("CLUSTER INFO")["cluster_state"] == "ok")  # type: ignore[misc]
    return nodes


def _has_slot(server: PrivateServer, boss: redis.Redis) -> bool:
    try:
        boss.get("{guard:main}:x")
    except redis.exceptions.MovedError:
        return False
    return True


def test_red_1_a_store_on_three_shards_works_from_any_of_them(shards: Any, opened: Any) -> None:
    for node in shards:
        store = opened(f"redis+cluster://127.0.0.1:{node.port}")
        granted, follow = start(store, keyed(new_id())), new_job()
        assert store.settle(succeeded(granted, follow=(follow,)))
        assert taken_ids(store) == [follow.id]


def test_red_1_a_store_follows_its_slot_to_another_shard(shards: Any, opened: Any, client: Any) -> None:
    store = opened(",".join([f"redis+cluster://127.0.0.1:{shards[0].port}", f"127.0.0.1:{shards[1].port}"]))
    granted = start(store)
    [owner] = [node for node in shards if _has_slot(node, client(node))]
    target = next(node for node in shards if node is not owner)
    slot = client(owner).execute_command("CLUSTER KEYSLOT", "{guard:main}")
    ids = {node.port: client(node).execute_command("CLUSTER MYID").decode() for node in shards}
    client(target).execute_command("CLUSTER SETSLOT", slot, "IMPORTING", ids[owner.port])
    client(owner).execute_command("CLUSTER SETSLOT", slot, "MIGRATING", ids[target.port])
    for key in client(owner).execute_command("CLUSTER GETKEYSINSLOT", slot, 1000):
        client(owner).execute_command("MIGRATE", "127.0.0.1", target.port, key, 0, 5000)
    for node in (target, owner):
        client(node).execute_command("CLUSTER SETSLOT", slot, "NODE", ids[target.port])
    assert store.settle(succeeded(granted)) is True
    assert store.counts() == {State.SUCCEEDED: 1}


def test_red_1_one_node_of_a_cluster_is_refused_with_what_to_write(shards: Any, client: Any) -> None:
    [stranger, _] = [node for node in shards if not _has_slot(node, client(node))]
    with closing(RedisStore(stranger.url)) as store, pytest.raises(StoreUnavailableError, match=r"redis\+cluster://"):
        store.check()
