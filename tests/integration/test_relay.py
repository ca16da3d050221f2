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
from types import SimpleNamespace
from typing import Any

import pytest
import redis
from click.testing import CliRunner
from sqlalchemy.orm import Session

from celery_guard.operate.cli.main import guard as command_line
from celery_guard.testing.servers import private_redis

from .fleet import Fleet, Process, eventually

pytestmark = pytest.mark.integration

APP = "tests.integration.app_outbox"


@pytest.fixture
def fleet(request: pytest.FixtureRequest, make_fleet: Callable[..., Fleet]) -> Fleet:
    return make_fleet(getattr(request, "param", "redis-postgresql"), APP)


#: A relay dies, or is paused, at the same places whatever the store.
ON_BOTH = pytest.mark.parametrize("fleet", ["redis-postgresql", "redis-redis"], indirect=True)


def queued(fleet: Fleet) -> list[str]:
    """The ids of the messages that wait in the broker, first come first."""
    with redis.Redis.from_url(fleet.environment["APP_BROKER"]) as client:
        prefix = (
            json.loads(fleet.environment["APP_CONF"]).get("broker_transport_options", {}).get("global_keyprefix", "")
        )
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


def job_of(fleet: Fleet, id: str) -> Any:
    return fleet.store.job(id)


def states(fleet: Fleet) -> dict[str, int]:
    return {state.value: count for state, count in fleet.store.counts().items()}


def guard(fleet: Fleet, *words: str) -> Any:
    """What the command line prints as JSON."""
    context = SimpleNamespace(app=fleet.app.app, no_color=False)
    done = CliRunner().invoke(command_line, [*words, "--json"], obj=context, catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return json.loads(done.stdout)


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
    assert Counter(queued(fleet)) == Counter(ids)
    published = Counter(mark.split()[1] for mark in fleet.marks() if mark.startswith("published"))
    assert len(published) == 2, "one of them did nothing"


@ON_BOTH
def test_out_3_a_relay_killed_between_publish_and_mark_repeats_only_what_it_had_not_marked(fleet: Fleet) -> None:
    """At most the batch at hand goes out again, under the same ids, and each of its jobs still runs once."""
    ids = enqueue(fleet, 60)
    short = {"CELERY_GUARD_RELAY_HOLD": "1s", "CELERY_GUARD_RELAY_BATCH": "20"}
    assert fleet.relay(**short, APP_BEFORE_MARK="die").process.wait(30) == -signal.SIGKILL
    assert queued(fleet) == ids[:20]
    assert states(fleet) == {"pending": 60}
    fleet.relay(**short)
    eventually(lambda: states(fleet) == {"sent": 60})
    assert Counter(queued(fleet)) == {id: 2 if id in ids[:20] else 1 for id in ids}
    fleet.worker(CELERY_GUARD_RELAY="no")
    fleet.all_quiet()
    eventually(lambda: not queued(fleet))
    assert states(fleet) == {"succeeded": 60}
    ran = Counter(mark for mark in fleet.marks() if mark.startswith("note"))
    assert ran == {f"note {number}": 1 for number in range(60)}


@ON_BOTH
def test_out_3_a_relay_that_was_paused_marks_nothing_of_what_another_has_taken(fleet: Fleet) -> None:
    """Woken, it finds its token gone from the rows, says so, and goes on with new ones."""
    ids = enqueue(fleet, 20)
    paused = fleet.relay(CELERY_GUARD_RELAY_HOLD="1s", APP_BEFORE_MARK="stop")
    eventually(lambda: (fleet.flags / "stopped").exists())
    assert states(fleet) == {"pending": 20}
    other = fleet.relay(APP_BEFORE_MARK="wait")
    eventually(lambda: f"published {other.process.pid} 20" in fleet.marks())
    taken = [fleet.store.job(id) for id in ids]
    paused.resume()
    paused.says("it had 20 jobs longer than relay_hold")
    assert f"marked {paused.process.pid} 0" in fleet.marks()
    assert [fleet.store.job(id) for id in ids] == taken
    fleet.raise_flag("mark")
    eventually(lambda: f"marked {other.process.pid} 20" in fleet.marks())
    assert Counter(queued(fleet)) == dict.fromkeys(ids, 2)
    other.kill()
    [late] = enqueue(fleet, 1)
    fleet.until(late, "sent")


def test_a_third_relay_stands_by_until_one_of_the_two_is_gone(fleet: Fleet) -> None:
    short = {"CELERY_GUARD_RELAY_HOLD": "1s"}
    first, second = fleet.relay(**short), fleet.relay(**short)
    active(fleet, first, second)
    third = fleet.relay(**short)
    third.says("Relaying from")
    fleet.until(enqueue(fleet, 1)[0], "sent")
    active(fleet, first, second)
    first.kill()
    active(fleet, second, third)


# -- what the broker will not have, and no broker -------------------------------------------------------------------------

#: How a message is sent that RabbitMQ, or its client, will not have.
REFUSED_BY_RABBITMQ: tuple[dict[str, Any], ...] = (
    {"exchange": "nowhere", "routing_key": "x"},  # closes the channel
    {"exchange": "amq.direct", "routing_key": "nobody"},  # comes back, and is confirmed
    {"headers": {"note": "x" * 200_000}},  # closes the connection
    {"headers": {"number": 2**70}},  # cannot be written
    {"priority": 300},  # neither can this
)


def test_out_6_rows_that_rabbitmq_refuses_do_not_starve_those_behind_them(make_fleet: Callable[..., Fleet]) -> None:
    """They are put off one by one, and are dead letters in the end."""
    fleet = make_fleet("rabbitmq-postgresql", APP)
    poison = [fleet.app.note.apply_async(("bad",), **REFUSED_BY_RABBITMQ[n % 5]).id for n in range(10)]
    good = enqueue(fleet, 100)
    fleet.relay(CELERY_GUARD_RELAY_BATCH="10", CELERY_GUARD_PUBLISH_ATTEMPTS="2")
    good_before_bad(fleet, good, poison)
    with fleet.app.app.connection_for_write() as connection:
        assert connection.default_channel.queue_declare(fleet.queue, passive=True).message_count == 100


def test_out_6_rows_that_redis_refuses_do_not_starve_those_in_one_batch_with_them(fleet: Fleet) -> None:
    """A whole batch is one round trip; the messages that went well in it are marked, and do not go again."""
    note = fleet.app.note
    fleet.relay(CELERY_GUARD_RELAY_BATCH="15", CELERY_GUARD_PUBLISH_ATTEMPTS="2")
    fleet.until(note.apply_async(("first",), queue="taken").id, "sent")
    with redis.Redis.from_url(fleet.environment["APP_BROKER"]) as client:
        client.set(f"{fleet.folder.name}:taken", "by something else")
    with Session(fleet.app.shop()) as session, session.begin(), fleet.app.guard.using(session):
        poison = [handle.id for handle in note.enqueue_many([["bad"]] * 10, queue="taken")]
        good = enqueue(fleet, 100)
    good_before_bad(fleet, good, poison)
    assert Counter(queued(fleet)) == Counter(good)


def good_before_bad(fleet: Fleet, good: list[str], poison: list[str]) -> None:
    """All the good ones were published, once, before the first of the others was given up."""
    eventually(lambda: all(job_of(fleet, id).state.value == "dead" for id in poison))
    bad, gone = ([job_of(fleet, id) for id in ids] for ids in (poison, good))
    assert {(job.reason.value, job.refusals, job.publications) for job in bad} == {("unpublishable", 1, 0)}
    assert all(job.failures[0].message for job in bad)
    assert max(job.sent for job in gone) < min(job.finished for job in bad)
    assert {(job.state.value, job.publications) for job in gone} == {("sent", 1)}


def test_out_6_a_row_that_was_refused_is_listed_with_its_error_and_goes_out_when_it_is_replayed(fleet: Fleet) -> None:
    with redis.Redis.from_url(fleet.environment["APP_BROKER"]) as client:
        client.set(f"{fleet.folder.name}:taken", "by something else")
        id = fleet.app.note.apply_async(("late",), queue="taken").id
        fleet.relay(CELERY_GUARD_PUBLISH_ATTEMPTS="1")
        fleet.until(id, "dead")
        [listed] = guard(fleet, "dlq", "list")
        assert (listed["id"], listed["reason"]) == (id, "unpublishable")
        shown = guard(fleet, "dlq", "show", id)
        assert "WRONGTYPE" in shown["failures"][0]["message"]
        client.delete(f"{fleet.folder.name}:taken")
        guard(fleet, "dlq", "replay", id, "--reason", "the key is free")
        fleet.until(id, "sent")
        # once as the replay; and once before it, if the relay was faster, so that a worker tells Celery of the first end
        assert client.llen(f"{fleet.folder.name}:taken") in (1, 2)
        assert (job_of(fleet, id).publications, job_of(fleet, id).replays) == (1, 1)


@pytest.mark.parametrize("how", ["away", "full"])
def test_out_6_a_broker_that_takes_nothing_costs_no_job_an_attempt(how: str, make_fleet: Callable[..., Fleet]) -> None:
    with private_redis(*(["--maxmemory", "1"] if how == "full" else [])) as broker:
        if how == "full":
            broker.start()
        fleet = make_fleet("redis-postgresql", APP, own_broker=broker.url)
        ids = enqueue(fleet, 5)
        relay = fleet.relay(CELERY_GUARD_PUBLISH_ATTEMPTS="2")
        eventually(lambda: relay.output().count("5 jobs wait in the store") >= 3)
        assert {(job_of(fleet, id).refusals, job_of(fleet, id).publications) for id in ids} == {(0, 0)}
        if how == "away":
            broker.start()
        else:
            with redis.Redis.from_url(broker.url) as client:
                client.config_set("maxmemory", "0")
        eventually(lambda: states(fleet) == {"sent": 5})
        assert Counter(queued(fleet)) == Counter(ids)


# -- its end ------------------------------------------------------------------------------------------------------------


def test_a_relay_that_is_told_to_stop_marks_what_it_has_published_and_takes_no_more(fleet: Fleet) -> None:
    ids = enqueue(fleet, 20)
    relay = fleet.relay(APP_BEFORE_MARK="wait", CELERY_GUARD_RELAY_BATCH="10")
    eventually(lambda: f"published {relay.process.pid} 10" in fleet.marks())
    relay.process.terminate()
    fleet.raise_flag("mark")
    assert relay.process.wait(30) == 0
    assert states(fleet) == {"sent": 10, "pending": 10}
    assert queued(fleet) == ids[:10]
    assert relays(fleet) == set(), "it kept its slot"


def test_a_relay_that_dies_beside_a_worker_is_started_again(fleet: Fleet) -> None:
    worker = fleet.worker()
    [first] = eventually(lambda: relays(fleet))
    os.kill(first, signal.SIGKILL)
    result = fleet.app.add.delay(1, 2)
    assert result.get(timeout=30) == 3
    assert relays(fleet) - {first}
    assert "the relay died" in worker.output()


def test_a_relay_ends_with_the_worker_that_it_runs_beside(fleet: Fleet) -> None:
    worker = fleet.worker()
    [relay] = eventually(lambda: relays(fleet))
    assert worker.terminate() == 0
    assert ended(relay)
    assert relays(fleet) == set(), "it kept its slot"


def test_a_relay_ends_when_the_main_process_of_its_worker_is_killed(fleet: Fleet) -> None:
    worker = fleet.worker()
    [relay] = eventually(lambda: relays(fleet))
    worker.process.kill()
    eventually(lambda: ended(relay), what="the relay's end")
    assert relays(fleet) == set(), "it kept its slot"
