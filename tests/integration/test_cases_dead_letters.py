"""DLQ-1 and G10: dead letters are replayed through the command line, by relays that are killed, by two operators at once, by the ten thousand."""

from __future__ import annotations

import gc
import json
import re
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import inspect

from celery_guard.flow.admin.actor import Actor, by_role
from celery_guard.flow.admin.audit import Authority
from celery_guard.flow.admin.letters import Letters
from celery_guard.flow.admin.replay import Driver, Replays
from celery_guard.job.replay import ItemState, ReplayState
from celery_guard.job.row import Job
from celery_guard.job.state import State
from celery_guard.job.verdict import Granted
from celery_guard.store import open_store
from celery_guard.store.protocol import Store
from celery_guard.testing.conformance.builders import LONG, dead, failure, keyed, new_job, payload, succeeded
from celery_guard.testing.conformance.moves import accept, claim, die, found, publish
from celery_guard.testing.databases import database
from celery_guard.testing.services import POSTGRESQL
from tests.unit.flow.nodes import Watched

from .shell import Shell

pytestmark = [pytest.mark.integration, pytest.mark.timeout(600)]

#: What a relay has to know to publish a message: a row without it is refused, and is put off for longer each time.
DELIVERY = {
    "exchange": "", "exchange_type": "direct", "routing_key": "default", "queue": "default", "declare": True, "priority": None,
    "content_type": "application/json", "content_encoding": "utf-8", "properties": {},
}  # fmt: skip

#: A 5 KB argument and a UUID, in bytes that no codec would write like that again.
MESSAGE = payload(
    b'[["' + b"x" * 5000 + b'",  "6d1b3f3c-8a50-4d3a-9a6e-0f5a6a4f7c21"],{},{}]',
    '{"celery-guard": {"version": 1}}',
    json.dumps(DELIVERY),
)

#: Long enough for any wait of a test that passes.
PATIENCE = 120.0


@pytest.fixture(params=["sqlite", "postgresql"])
def shell(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Shell]:
    if request.param == "sqlite":
        opened = Shell(tmp_path, "celery-guard", f"sqlite:///{tmp_path / 'guard.db'}")
        yield opened
        opened.close()
        return
    with database(POSTGRESQL.need()) as url:
        opened = Shell(tmp_path, "celery-guard", url)
        yield opened
        opened.close()


@pytest.fixture
def store(shell: Shell) -> Iterator[Store]:
    store = open_store(shell.url)
    store.upgrade()
    yield store
    store.close()


def begin_replay(shell: Shell, *words: str) -> dict[str, Any]:
    """Type a replay; the replay that has begun."""
    done = shell.type("dlq", "replay", *words, "--reason", "gateway is back", "--rate", "1000", "--json")
    begun: dict[str, Any] = json.loads(done.stdout)["replay"]
    return begun


def letter(store: Store) -> str:
    """The id of a new dead letter that a relay can publish."""
    return die(store, new_job(payload=MESSAGE), failure=failure(cause="down")).id


def state_of(store: Store, id: str) -> ReplayState:
    replay = store.replay_of(id)
    assert replay is not None
    return replay.state


def work(store: Store, fails: Callable[[str], bool]) -> int:
    """Run what was sent, as workers would; how many ran."""
    ran = 0
    for job in store.jobs(states=[State.PENDING, State.SENT], limit=1000):
        granted = store.claim(job.id, "worker-1", LONG)
        if isinstance(granted, Granted):
            again = dead(granted, failure=failure(cause="down"))
            assert store.settle(again if fails(job.id) else succeeded(granted))
            ran += 1
    return ran


def until(
    store: Store, id: str, fails: Callable[[str], bool] = lambda id: False, between: Callable[[], None] = lambda: None
) -> None:
    """Work until the replay does not go on any more."""
    end = time.monotonic() + 4 * PATIENCE
    while state_of(store, id) is ReplayState.RUNNING:
        assert time.monotonic() < end, store.replay_of(id)
        if not work(store, fails):
            time.sleep(0.02)
        between()


def relay(shell: Shell) -> subprocess.Popen[bytes]:
    """A relay of the shop's, which drives replays, in a process of its own."""
    environment = shell.environment(
        CELERY_GUARD_SWEEP_EVERY="0.2", CELERY_GUARD_POLL="0.05", CELERY_GUARD_RELAY_HOLD="1"
    )
    return subprocess.Popen(shell.command("relay"), cwd=shell.folder, env=environment, stderr=subprocess.DEVNULL)


def test_dlq_1_a_hundred_that_fail_again_twice_are_a_hundred_letters_with_their_history(
    shell: Shell, store: Store
) -> None:
    ids = [letter(store) for _ in range(100)]
    for time_ in (1, 2):
        begun = begin_replay(shell, "--all", "--stop-share", "100", "--same-cause", "100")
        driver = Driver(store)
        for _ in range(1000):
            if not driver.once():
                break
            work(store, lambda id: True)
        assert state_of(store, begun["id"]) is ReplayState.DONE
        assert [group.count for group in store.groups()] == [100]
        assert store.counts() == {State.DEAD: 100}
        assert {(found(store, id).replays, len(found(store, id).failures)) for id in ids} == {(time_, time_ + 1)}
        assert {store.payload(id) for id in ids} == {MESSAGE}


def test_dlq_1_two_operators_at_once_send_each_letter_once(shell: Shell, store: Store) -> None:
    ids = [letter(store) for _ in range(40)]
    words = shell.command("dlq", "replay", "--all", "--reason", "both", "--rate", "1000", "--json")
    both = [
        subprocess.Popen(
            words, cwd=shell.folder, env=shell.environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
        for _ in range(2)
    ]
    answers = [each.communicate(timeout=60)[0] for each in both]
    begun = [json.loads(answer)["replay"]["id"] for answer in answers if answer]
    assert begun
    relays = [relay(shell), relay(shell)]
    try:
        for id in begun:
            until(store, id)
    finally:
        for each in relays:
            each.kill()
            each.wait(30)
    assert store.counts() == {State.SUCCEEDED: 40}
    assert {found(store, id).replays for id in ids} == {1}


def test_dlq_1_a_replay_whose_relays_are_killed_goes_on_without_repeats(shell: Shell, store: Store) -> None:
    ids = [letter(store) for _ in range(60)]
    id = begin_replay(shell, "--all")["id"]
    current = [relay(shell)]
    seen: list[int] = []

    def kill_now_and_then() -> None:
        """Each time that it has come a bit further."""
        replay = store.replay_of(id)
        assert replay is not None
        over = replay.counts.get(ItemState.SUCCEEDED, 0)
        if over >= 12 * (len(seen) + 1) and len(seen) < 4:
            seen.append(over)
            current[0].send_signal(signal.SIGKILL)
            current[0].wait(30)
            current[0] = relay(shell)

    try:
        until(store, id, between=kill_now_and_then)
    finally:
        current[0].kill()
        current[0].wait(30)
    assert seen, "no relay was killed"
    assert state_of(store, id) is ReplayState.DONE
    assert [(found(store, one).state, found(store, one).replays) for one in ids] == [(State.SUCCEEDED, 1)] * 60


def test_dlq_1_what_was_cancelled_or_has_succeeded_under_its_key_is_skipped_with_the_reason(
    shell: Shell, store: Store
) -> None:
    taken, cancelled, fine = die(store, keyed("order 7")).id, die(store).id, die(store, keyed("order 8")).id
    again = keyed("order 7")
    publish(store, again)
    assert store.settle(succeeded(claim(store, again.id)))
    store.replay([cancelled])
    store.cancel(cancelled)
    done = shell.type("dlq", "replay", taken, cancelled, fine, "--reason", "r", "--rate", "1000")
    assert done.returncode == 1
    assert "1 would be skipped: its key is held by another job (succeeded)" in done.stderr
    assert "1 would be skipped: it is cancelled, not dead" in done.stderr
    assert re.search(r"replay \w+ of 1 jobs has begun", done.stdout)
    assert found(store, fine).state is State.PENDING
    # its death had freed the key, and the replay has taken it again
    [answer] = store.enqueue([keyed("order 8")])
    assert answer.id != fine
    assert getattr(answer, "holder", fine) == fine


@pytest.mark.timeout(400)
def test_a_dependency_that_fails_again_after_a_while_stops_the_replay_and_the_rest_stay_letters(
    shell: Shell, store: Store
) -> None:
    for _ in range(60):
        letter(store)
    begun = begin_replay(shell, "--cause", "down")
    ran: list[str] = []

    def fails(id: str) -> bool:
        ran.append(id)
        return len(ran) > 8

    process = relay(shell)
    try:
        until(store, begun["id"], fails)
        stopped = shell.answer("dlq", "replays", begun["id"])
        assert (stopped["state"], "died again of the cause" in stopped["why"]) == ("stopped", True)
        assert stopped["counts"]["waiting"] >= 60 - 26
        assert shell.type("dlq", "resume", begun["id"], "--reason", "it is up").returncode == 0
        until(store, begun["id"])
    finally:
        process.kill()
        process.wait(30)
    assert shell.answer("dlq", "replays", begun["id"])["state"] == "done"
    actions = {(row["action"], row["outcome"]) for row in shell.answer("audit", "list")}
    assert {
        ("dlq.replay", "intended"),
        ("dlq.replay", "done"),
        ("replay.stop", "done"),
        ("replay.resume", "done"),
    } <= actions


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_fifty_thousand_letters_are_frozen_page_by_page(store: Store) -> None:
    """No statement is about more than a page, and what is held in memory does not grow with the letters."""
    number = 50_000
    _fill(store, number)
    sizes: dict[str, int] = {}
    watched = _sized(store, sizes)
    replays = Replays(watched, Authority(store, by_role, number), lambda task: True)
    replay = replays.begin(Letters(), by=Actor("ann"), reason="gateway is back", rate=1000)
    assert replay.total == number
    assert sizes.pop("alive") <= 3 * 500
    assert sizes == {"jobs": 500, "would_replay": 500, "replay_add": 100}
    driver = Driver(store)
    for _ in range(3):
        driver.once()
        work(store, lambda id: False)
    assert state_of(store, replay.id) is ReplayState.RUNNING
    [group] = store.groups()
    assert group.count > number - 30


def _sized(store: Store, sizes: dict[str, int]) -> Any:
    """The store; notes how large its pages are, and how many jobs are in memory now and then."""
    calls: Counter[str] = Counter()

    class Sized(Watched):
        def __getattr__(self, name: str) -> Any:
            method = getattr(store, name)
            if name not in ("jobs", "would_replay", "replay_add"):
                return method

            def call(*args: Any, **kwargs: Any) -> Any:
                size = kwargs["limit"] if name == "jobs" else len(args[-1] if name == "would_replay" else args[1])
                sizes[name] = max(size, sizes.get(name, 0))
                calls[name] += 1
                if name == "would_replay" and calls[name] % 40 == 0:
                    alive = sum(type(each) is Job for each in gc.get_objects())
                    sizes["alive"] = max(alive, sizes.get("alive", 0))
                return method(*args, **kwargs)

            return call

    return Sized(store)


def _fill(store: Store, number: int) -> None:
    """Many dead letters, written as they would stand there."""
    one = die(store, new_job(tenant="acme"), failure=failure(cause="down"))
    engine = store._database.engine  # type: ignore[attr-defined]
    with engine.connect() as connection:
        columns = [column["name"] for column in inspect(engine).get_columns("guard_job")]
        others = ", ".join(name for name in columns if name not in ("id", "created"))
        numbered = "printf('%05d', i)" if engine.dialect.name == "sqlite" else "lpad(i::text, 5, '0')"
        connection.exec_driver_sql(
            f"WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < {number - 1}) "  # noqa: S608 - names of columns
            f"INSERT INTO guard_job (id, created, {others}) SELECT 'letter-' || {numbered}, created + i, {others} FROM guard_job, n WHERE id = '{one.id}'"
        )
        connection.exec_driver_sql(
            "INSERT INTO guard_payload (job, generation, body, headers, delivery) "
            "SELECT j.id, 0, p.body, p.headers, p.delivery FROM guard_job j, guard_payload p WHERE j.id <> p.job"
        )


def test_a_replay_that_was_being_built_when_its_process_died_sends_nothing(shell: Shell, store: Store) -> None:
    ids = [die(store, failure=failure(cause="down")).id for _ in range(3)]
    from celery_guard.testing.conformance.replays import new_replay

    left = new_replay()
    store.replay_begin(left)
    store.replay_add(left.id, ids, 0)
    Driver(store).once()
    assert store.counts() == {State.DEAD: 3}
    assert shell.type("dlq", "abort", left.id, "--reason", "left behind").returncode == 0
    accept(store, new_job())
    assert state_of(store, left.id) is ReplayState.ABORTED
