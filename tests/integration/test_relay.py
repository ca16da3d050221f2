"""The relay in processes of its own: two at work, one that dies, one that is paused, the broker away, and its end.

What the store promises to relays is in the conformance suite; here is what becomes of real ones.
"""

from __future__ import annotations

import json
import os
import signal
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import redis

from celery_guard.testing.servers import PrivateServer, private_redis

from .fleet import Fleet, Process, eventually

pytestmark = pytest.mark.integration

APP = "tests.integration.app_outbox"


@pytest.fixture
def fleet(make_fleet: Callable[..., Fleet]) -> Fleet:
    return make_fleet("redis-postgresql", APP)


def queued(fleet: Fleet) -> list[str]:
    """The ids of the messages that wait in the broker, first come first."""
    with redis.Redis.from_url(fleet.environment["APP_BROKER"]) as client:
        prefix = json.loads(fleet.environment["APP_CONF"]).get("broker_transport_options", {}).get("global_keyprefix", "")
        messages = client.lrange(f"{prefix}{fleet.queue}", 0, -1)
    assert isinstance(messages, list)
    return [json.loads(message)["headers"]["id"] for message in reversed(messages)]


def relays(fleet: Fleet) -> set[int]:
    """The processes that hold a relay's slot."""
    beats = (beat for beat in fleet.store.heartbeats() if beat.live and beat.name.startswith("relay:"))
    return {int(beat.token.split(":")[1]) for beat in beats}


def active(fleet: Fleet, *processes: Process) -> None:
    """Wait until these are the relays at work."""
    pids = {process.process.pid for process in processes}
    eventually(lambda: relays(fleet) == pids, what=f"relays {pids} at work")


def enqueue(fleet: Fleet, count: int) -> list[str]:
    """Many jobs in one commit; their ids."""
    return [handle.id for handle in fleet.app.note.enqueue_many([[number] for number in range(count)])]


def states(fleet: Fleet) -> dict[str, int]:
    return {state.value: count for state, count in fleet.store.counts().items()}


def ended(pid: int) -> bool:
    """Whether a process is gone, or waits only for its parent to see it."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True


# -- two at work --------------------------------------------------------------------------------------------------------


def test_out_3_two_relays_publish_every_row_once(fleet: Fleet) -> None:
    several = {"CELERY_GUARD_RELAY_BATCH": "20", "APP_BEFORE_MARK": "count"}
    active(fleet, fleet.relay(**several), fleet.relay(**several))
    ids = enqueue(fleet, 1000)
    eventually(lambda: states(fleet) == {"sent": 1000})
    print(Counter(fleet.store.job(i).publications for i in ids), fleet.marks(), len(queued(fleet)))
    assert Counter(queued(fleet)) == Counter(ids)
    published = Counter(mark.split()[1] for mark in fleet.marks() if mark.startswith("published"))
    assert len(published) == 2, "one of them did nothing"
    assert {fleet.store.job(id).publications for id in ids[::50]} == {1}  # type: ignore[union-attr]
