"""The link to the broker: CONN-2 (jobs received and lost across a restart), and brokers that are really killed while jobs flow.

A message is only a wake-up call. Whatever the broker forgets or says twice, the row says what there is to do.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
import redis
from sqlalchemy import text

from celery_guard.testing.servers import PrivateServer, private_rabbitmq, private_redis

from .fleet import Fleet, Worker, eventually

pytestmark = pytest.mark.integration

APP = "tests.integration.app_outbox"


class Messages:
    """What Redis keeps of a fleet: messages that wait, and messages that a worker has taken and not acknowledged."""

    def __init__(self, fleet: Fleet) -> None:
        options = json.loads(fleet.environment["APP_CONF"])["broker_transport_options"]
        self._prefix = options["global_keyprefix"]
        self._queue = self._prefix + fleet.queue
        self._client = redis.Redis.from_url(fleet.environment["APP_BROKER"])

    def taken(self) -> list[bytes]:
        kept: Any = self._client.hvals(f"{self._prefix}unacked")
        return [json.dumps(json.loads(each)[0]).encode() for each in kept]

    def forget(self) -> None:
        for key in self._client.scan_iter(f"{self._prefix}*", count=1000):
            self._client.delete(key)

    def give_back_twice(self) -> None:
        for message in self.taken():
            self._client.lpush(self._queue, message, message)
        self._client.delete(f"{self._prefix}unacked", f"{self._prefix}unacked_index")

    def close(self) -> None:
        self._client.close()


def hurry(fleet: Fleet, id: str) -> None:
    """Let the time pass until the job is due."""
    with fleet.app.shop().begin() as connection:
        connection.execute(text("UPDATE guard_job SET due = 0 WHERE id = :id"), {"id": id})


@pytest.mark.parametrize("broker", ["forgets", "says everything twice"])
def test_conn_2_jobs_that_a_killed_worker_had_received_run_once_after_the_restart(
    broker: str, make_fleet: Callable[..., Fleet]
) -> None:
    """One was running, two were received and not handed to the pool, two wait for their time: in the store, not in a worker's timer."""
    fleet = make_fleet("redis-postgresql", APP, worker_prefetch_multiplier=4)
    app, messages = fleet.app, Messages(fleet)
    running = app.wait_for.delay("go")
    worker = fleet.worker(concurrency=1)
    fleet.until(running.id, "running")
    received = [app.note.delay(word) for word in ("one", "two")]
    later = app.note.apply_async(("in a minute",), countdown=60)
    tomorrow = app.note.apply_async(("tomorrow",), countdown=86_400)
    eventually(lambda: len(messages.taken()) == 2, what="both received")
    for job in received:
        fleet.until(job.id, "sent")
    worker.process.terminate()
    worker.says("Warm shutdown")
    worker.kill()
    assert fleet.marks() == ["wait_for"]
    assert {fleet.state(job.id) for job in received} == {"sent"}
    assert {fleet.state(job.id) for job in (later, tomorrow)} == {"pending"}

    if broker == "forgets":
        messages.forget()
    else:
        messages.give_back_twice()
    hurry(fleet, later.id)
    fleet.raise_flag("go")
    fleet.worker(concurrency=1)
    for job in (running, *received, later):
        assert fleet.settled(job.id).state.value == "succeeded"
    messages.close()
    assert fleet.counted() == {
        "wait_for": 2, "wait_for done": 1, "note one": 1, "note two": 1, "note in a minute": 1
    }  # fmt: skip
    waiting = fleet.store.job(tomorrow.id)
    assert waiting is not None
    assert waiting.state.value == "pending"
    assert waiting.due is not None
    assert (waiting.due - waiting.created).total_seconds() == pytest.approx(86_400, abs=1)


def outage(fleet: Fleet, server: PrivateServer) -> None:
    """The broker is killed under a working fleet, jobs come in meanwhile, and it starts again. Each job runs once."""
    app = fleet.app
    held = [app.wait_for.delay("go") for _ in range(2)]
    worker: Worker = fleet.worker(concurrency=2)
    for job in held:
        fleet.until(job.id, "running")
    behind = [app.note.delay(f"behind {number}") for number in range(20)]
    for job in behind:
        fleet.until(job.id, "sent")
    server.kill()
    meanwhile = [app.note.delay(f"meanwhile {number}") for number in range(20)]
    worker.says("jobs wait in the store")
    fleet.raise_flag("go")
    server.start()
    for job in (*held, *behind, *meanwhile):
        settled = fleet.settled(job.id, seconds=60)
        assert (settled.state.value, settled.attempts, settled.refusals) == ("succeeded", 1, 0)
    assert fleet.counted() == {
        "wait_for": 2, "wait_for done": 2, **{f"{when} {n}": 1 for when in ("note behind", "note meanwhile") for n in range(20)}
    }  # fmt: skip


def test_a_redis_that_dies_with_all_its_messages_loses_no_job(make_fleet: Callable[..., Fleet]) -> None:
    with private_redis() as server:
        server.start()
        outage(make_fleet("redis-postgresql", APP, own_broker=server.url), server)


@pytest.mark.slow
def test_a_rabbitmq_that_dies_and_comes_back_loses_no_job(make_fleet: Callable[..., Fleet]) -> None:
    with private_rabbitmq() as server:
        server.start()
        outage(make_fleet("rabbitmq-postgresql", APP, own_broker=server.url), server)
