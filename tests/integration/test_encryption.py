"""Encryption by real processes: a secret goes from a publisher to its end and is ciphertext at every stop, while keys are changed under it."""

from __future__ import annotations

import base64
import binascii
import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from types import MappingProxyType
from typing import Any

import pytest
import redis
from sqlalchemy import MetaData, create_engine, select

from celery_guard.job.encryption import Encryption
from celery_guard.job.state import Reason, State

from .fleet import ROOT, Fleet, eventually

if not os.environ.get("CI"):
    pytest.importorskip("cryptography", reason="pip install 'celery-guard[encryption]'")

pytestmark = [pytest.mark.integration, pytest.mark.timeout(300)]

OLD = "b2xkLW9sZC1vbGQtb2xkLW9sZC1vbGQtb2xkLW9sZC0="
NEW = "bmV3LW5ldy1uZXctbmV3LW5ldy1uZXctbmV3LW5ldy0="
CARD, PLAIN = "4111-1111-1111-1111", "4222-2222-2222-2222"

ON_BOTH = pytest.mark.parametrize("stack", ["redis-postgresql", "embedded"])


@pytest.fixture
def encrypted(make_fleet: Callable[..., Fleet]) -> Callable[[str, str], Fleet]:
    """Make a fleet whose processes have these keys, unless they are started with others."""

    def make(stack: str, keys: str) -> Fleet:
        fleet = make_fleet(stack, "tests.integration.app_encrypted")
        fleet.environment |= {**with_keys(keys), "CELERY_GUARD_KEY_SECRET": "0123456789abcdef"}
        return fleet

    return make


def with_keys(keys: str) -> dict[str, str]:
    """The environment of a process that has these keys."""
    return {"CELERY_GUARD_ENCRYPTION_KEYS": keys, "CELERY_GUARD_ENCRYPT": "true"}


#: The environment of a process that sends plain.
SENDS_PLAIN = {"CELERY_GUARD_ENCRYPT": "false"}


@contextmanager
def without_keys(fleet: Fleet) -> Iterator[None]:
    """What is started inside has no key."""
    kept = {name: fleet.environment.pop(name) for name in with_keys("")}
    yield
    fleet.environment |= kept


def typed(fleet: Fleet, *words: str, env: Mapping[str, str] = MappingProxyType({}), status: int | None = None) -> str:
    """What an operator with this environment sees who types these words."""
    command = [sys.executable, "-m", "celery", "-A", fleet.module, "guard", *words]
    done = subprocess.run(command, cwd=ROOT, env={**fleet.environment, **env}, text=True, capture_output=True)
    assert status in (None, done.returncode), done.stdout + done.stderr
    return done.stdout if "--json" in words else done.stdout + done.stderr


def send(fleet: Fleet, *orders: str, card: str = CARD, **env: str) -> dict[str, str]:
    """The ids of jobs that a publisher with this environment sends, by order."""
    code = f"import json; print(json.dumps({{o: m.pays.delay(o, card={card!r}).id for o in {orders!r}}}))"
    ids: dict[str, str] = json.loads(fleet.says(code, **env))
    return ids


# -- what can be read of it ---------------------------------------------------------------------------------------------


def in_store(fleet: Fleet) -> str:
    """Every value in every table."""
    engine = create_engine(fleet.environment["CELERY_GUARD_STORE"])
    tables = MetaData()
    with engine.connect() as connection:
        tables.reflect(connection)
        rows = [row for table in tables.tables.values() for row in connection.execute(select(table))]
    engine.dispose()
    values = (value for row in rows for value in row)
    return readable(bytes(value) if isinstance(value, (bytes, memoryview)) else str(value).encode() for value in values)


def on_broker(fleet: Fleet) -> str:
    """Every message that is on the broker, as it is there."""
    url = fleet.environment["APP_BROKER"]
    if not url.startswith("redis"):
        return readable(path.read_bytes() for path in (fleet.folder / "queue").rglob("*") if path.is_file())
    with redis.Redis.from_url(url) as client:
        keys = list(client.scan_iter(f"{fleet.folder.name}:*", count=1000))
        lists = [client.lrange(key, 0, -1) for key in keys if client.type(key) == b"list"]
        hashes = [client.hvals(key) for key in keys if client.type(key) == b"hash"]
    return readable(value for values in (*lists, *hashes) for value in values)


def readable(values: Iterable[bytes]) -> str:
    """All of it, and what stands in it as base64, in which transports write bodies."""
    found = b"\n".join(values)
    for _ in range(2):
        found += b"\n" + b"\n".join(map(_decoded, re.findall(rb"[A-Za-z0-9+/]{16,}={0,2}", found)))
    return found.decode("utf-8", "replace")


def _decoded(text: bytes) -> bytes:
    try:
        return base64.b64decode(text)
    except binascii.Error:
        return b""


# -- the tests ----------------------------------------------------------------------------------------------------------


@ON_BOTH
def test_a_secret_is_ciphertext_at_every_stop_from_the_publisher_to_the_replay(
    encrypted: Callable[[str, str], Fleet], stack: str
) -> None:
    fleet = encrypted(stack, OLD)
    jobs = send(fleet, "returns", "changes", "fails")
    # what is sent plain beside them shows that each look finds what is there to be found
    jobs |= send(fleet, "plain", card=PLAIN, **SENDS_PLAIN)
    relay = fleet.relay()
    eventually(lambda: all(fleet.state(id) == "sent" for id in jobs.values()))
    relay.terminate()
    for found in (in_store(fleet), on_broker(fleet)):
        assert (PLAIN in found, CARD in found) == (True, False)

    worker = fleet.worker("prefork", 2, "-l", "DEBUG")
    ends = {order: fleet.settled(id).state.value for order, id in jobs.items()}
    assert ends == {"returns": "succeeded", "changes": "succeeded", "fails": "dead", "plain": "succeeded"}
    listed = json.loads(typed(fleet, "dlq", "groups", "--json"))
    assert [group["type_name"] for group in listed] == ["ConnectionError"]
    reveal = ("dlq", "show", jobs["fails"], "--reveal", "--role", "admin", "--reason", "support case")
    assert CARD in typed(fleet, *reveal)
    with without_keys(fleet):
        assert "[GUARD-503]" in typed(fleet, *reveal, status=1)
    fleet.raise_flag("gateway is back")
    typed(fleet, "dlq", "replay", jobs["fails"], "--reason", "the gateway is back", "--json")
    fleet.until(jobs["fails"], "succeeded", seconds=60)
    assert fleet.counted() == {"returns": 1, "changes": 2, "fails": 3, "plain": 1}
    # a duplicate is given the value by a process that has the key
    again = fleet.says(f"print(m.pays.delay('returns', card={CARD!r}).get(timeout=30))")
    assert again.strip() == f"{{'receipt for': '{CARD}'}}"

    worker.terminate()
    shown = [typed(fleet, "jobs", "show", id) for id in jobs.values()]
    logged = readable(path.read_bytes() for path in fleet.folder.glob("*.log"))
    assert jobs["fails"] in logged
    for found in (in_store(fleet), on_broker(fleet), logged, "".join(shown)):
        assert CARD not in found, found[max(0, found.find(CARD) - 300) : found.find(CARD) + 50]


@ON_BOTH
def test_keys_are_changed_under_jobs_on_their_way_and_who_does_not_have_the_key_loses_none(
    encrypted: Callable[[str, str], Fleet], stack: str
) -> None:
    """A worker was forgotten with the old key alone, and one has none; then the old key is taken away."""
    fleet = encrypted(stack, OLD)
    changing, after = with_keys(f"{NEW},{OLD}"), with_keys(NEW)
    forgotten = fleet.worker("prefork", 2)
    old = send(fleet, "waits", "fails")
    eventually(lambda: fleet.state(old["waits"]) == "running")
    fleet.until(old["fails"], "dead")
    new = send(fleet, "first", "second", "third", **changing)
    held(fleet, *new.values())
    assert "EXPLAIN-145" in typed(fleet, "explain", new["first"])
    forgotten.says(f"encrypted with the key {id_of(NEW)}; this process has those of {id_of(OLD)}")

    # under the body of one, whose message is still there; and a letter, with what its two attempts said
    assert "4 renewed" in typed(fleet, "keys", "rotate", "--reason", "yearly", env=changing)
    fleet.raise_flag("go on")
    fleet.until(old["waits"], "succeeded")
    forgotten.terminate()

    with without_keys(fleet):
        keyless = fleet.worker("prefork", 2)
    fences = {id: fleet.job(id).fence for id in new.values()}
    eventually(lambda: all(fleet.job(id).fence > fence for id, fence in fences.items()))
    held(fleet, *new.values())
    keyless.says(f"keys that this worker does not have ({id_of(NEW)}")
    keyless.terminate()

    relay = fleet.relay(**after)
    early = send(fleet, "early")
    fleet.until(early["early"], "sent")
    relay.terminate()
    # the result of the one that ran, and the message of the one that waits; its copy on the broker stays as it is
    assert "2 renewed" in typed(fleet, "keys", "rotate", "--reason", "yearly", env=changing)
    left = {use["key"]: use["messages"] + use["results"] + use["failures"] for use in status(fleet, changing)}
    assert left[id_of(OLD)] == 0
    fleet.raise_flag("gateway is back")
    fleet.environment |= after
    fleet.worker("prefork", 2)
    typed(fleet, "dlq", "replay", old["fails"], "--reason", "the gateway is back", "--json")
    for id in (*new.values(), *early.values(), old["fails"]):
        fleet.until(id, "succeeded", seconds=120)
    assert fleet.counted() == {"waits": 1, "fails": 3, "first": 1, "second": 1, "third": 1, "early": 1}
    assert CARD not in in_store(fleet)


def held(fleet: Fleet, *ids: str) -> None:
    """Wait until each of the jobs is parked for its key, and was charged for nothing."""
    for id in ids:
        eventually(partial(_parked, fleet, id))
        job = fleet.job(id)
        assert (job.attempts, job.retries, job.crashes) == (0, 0, 0)


def _parked(fleet: Fleet, id: str) -> bool:
    job = fleet.job(id)
    return job.state is State.PENDING and job.reason is Reason.HELD_ENCRYPTION


def id_of(key: str) -> str:
    return Encryption([key]).keys[0]


def status(fleet: Fleet, env: Mapping[str, str]) -> list[dict[str, Any]]:
    uses: list[dict[str, Any]] = json.loads(typed(fleet, "keys", "status", "--json", env=env))
    return uses
