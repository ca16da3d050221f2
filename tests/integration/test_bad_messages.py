"""A worker is fed messages that are wrong in every way, with good ones between them. (In one process: tests/unit/integrations.)"""

from __future__ import annotations

import json
import os
import random
from collections.abc import Callable

import pytest

from tests.noise import TOKEN, Noise, noise

from .fleet import Fleet, eventually

pytestmark = [pytest.mark.integration, pytest.mark.timeout(240)]

BAD, GOOD = 200, 20

#: Whose classes may be asked for: the pool's own pipes between a worker's processes carry results and errors, and no message's pickle.
POOL = {
    "pydantic",
    "celery",
    "billiard",
    "kombu",
    "celery_guard",
    "builtins",
    "collections",
    "copyreg",
    "datetime",
    "tests",
    "vine",
    "amqp",
}


@pytest.mark.parametrize("stack", ["redis-postgresql", "embedded"])
def test_a_worker_survives_200_bad_messages_and_runs_the_good_ones(
    make_fleet: Callable[..., Fleet], stack: str
) -> None:
    seed = int(os.environ.get("GUARD_TEST_SEED", random.SystemRandom().randrange(2**32)))
    print(f"GUARD_TEST_SEED={seed}")
    draw = random.Random(seed)
    fleet = make_fleet(stack, "tests.integration.app_noise", worker_prefetch_multiplier=20)
    pickles = fleet.folder / "pickles"
    worker = fleet.worker(APP_PICKLES=str(pickles))
    bad = [noise(draw, number, fleet.app.take.name) for number in range(BAD)]
    good = [value for value in range(GOOD) for _ in range(BAD // GOOD)]
    ids = {}
    with fleet.app.app.connection_for_write() as connection:
        producer = connection.Producer(auto_declare=False)
        for place, message in enumerate(bad):
            producer.publish(
                message.body, exchange="", routing_key=fleet.queue, content_type=message.content_type,
                content_encoding=message.content_encoding, headers=message.headers, **message.properties,
            )  # fmt: skip
            if good[place] not in ids:
                ids[good[place]] = fleet.app.take.delay(good[place]).id
    for id in ids.values():
        assert fleet.settled(id, seconds=90).state.value == "succeeded"
    assert {f"take {value}" for value in range(GOOD)} <= fleet.counted().keys()
    eventually(lambda: not _nowhere(fleet, bad), 60, "every bad message set aside, or a job")
    assert len(fleet.store.quarantined(1000)) > BAD / 4, "most noise is no job"
    assert worker.process.poll() is None
    asked = {line.partition(" ")[0] for line in pickles.read_text().splitlines()} if pickles.exists() else set()
    assert {module.partition(".")[0] for module in asked} <= POOL, asked


def _nowhere(fleet: Fleet, bad: list[Noise]) -> list[Noise]:
    """Messages that are neither in quarantine nor a job."""
    aside = {json.loads(found.headers).get(TOKEN) for found in fleet.store.quarantined(1000)}
    left = [message for message in bad if message.headers[TOKEN] not in aside]
    rows = {job.id for job in fleet.store.jobs(limit=1000)}
    return [message for message in left if message.headers.get("id") not in rows]
