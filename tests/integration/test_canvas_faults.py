"""Canvas while members are killed, retried, cancelled, doubled or dead: what hangs on them happens once, on each result backend.

One worker a backend serves all tests; each counts what its own tag has left.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import pytest
from celery.exceptions import ChordError, TaskRevokedError

from celery_guard.store import open_store
from celery_guard.testing.databases import database
from celery_guard.testing.services import POSTGRESQL

from .fleet import Fleet, eventually

pytestmark = [pytest.mark.integration, pytest.mark.timeout(180)]

MODULE = "tests.integration.app_canvas"

#: Result backends; all but Redis wait for a chord's members by polling (``celery.chord_unlock``), which is guarded here as well.
BACKENDS = ("redis", "db+postgresql", "db+sqlite")


@pytest.fixture(scope="module", params=BACKENDS)
def fleet(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, redis_url: str) -> Iterator[Fleet]:
    folder: Path = tmp_path_factory.mktemp("canvas") / f"fleet-{uuid4().hex[:12]}"
    folder.mkdir()
    options = {"broker_transport_options": {"visibility_timeout": 3600, "global_keyprefix": f"{folder.name}:"}}
    with database(POSTGRESQL.need()) as store_url:
        store = open_store(store_url)
        store.upgrade()
        store.close()
        backend = {
            "redis": redis_url + "2",
            "db+postgresql": f"db+{store_url}",
            "db+sqlite": f"db+sqlite:///{folder / 'results.db'}",
        }[request.param]
        fleet = Fleet(folder, redis_url + "1", store_url, backend, MODULE, **options)
        fleet.worker("prefork", 4, GUARD_TEST_FAULTS=str(folder))
        yield fleet
        for worker in fleet.workers:
            worker.kill()
        fleet.close()


@pytest.fixture
def tag() -> str:
    return uuid4().hex[:8]


def left(fleet: Fleet, tag: str) -> Counter[str]:
    """How often each body of this test was entered, once nothing of it is on its way."""
    fleet.all_quiet(60)
    return Counter(what.removeprefix(f"{tag} ") for what in fleet.marks() if what.startswith(tag))


@pytest.mark.parametrize(("how", "entries"), [("well", 1), ("dies", 2), ("retries", 3)])
def test_a_chord_fires_once_with_all_values_whatever_a_member_goes_through(
    fleet: Fleet, tag: str, how: str, entries: int
) -> None:
    app = fleet.app
    result = app.chord([app.part.s(tag, 1), app.part.s(tag, 2, how), app.part.s(tag, 3)], app.whole.s(tag)).delay()
    assert result.get(timeout=60) == 6
    assert left(fleet, tag) == {"part 1": 1, "part 2": entries, "part 3": 1, "whole [1, 2, 3]": 1}


@pytest.mark.parametrize("point", ["settle.after", "tell.before", "part.before", "tell.after"])
def test_a_chord_fires_once_though_a_member_dies_between_its_end_and_celery_hearing_of_it(
    fleet: Fleet, tag: str, point: str
) -> None:
    if point == "part.before" and "db" in fleet.environment["APP_BACKEND"]:
        pytest.skip("a database keeps no parts of chords")
    app = fleet.app
    members = [app.part.s(tag, 1), app.part.s(tag, 2).set(task_id=f"{point}@{tag}")]
    result = app.chord(members, app.whole.s(tag)).delay()
    assert result.get(timeout=60) == 3
    assert left(fleet, tag) == {"part 1": 1, "part 2": 1, "whole [1, 2]": 1}


@pytest.mark.parametrize("size", [1, 2], ids=["one", "a group"])
def test_the_body_of_a_chord_waits_for_a_store_that_is_away_when_celery_sends_it(
    fleet: Fleet, tag: str, size: int
) -> None:
    """Celery takes an error there for the end of the chord, and forgets its parts."""
    app = fleet.app
    body = app.whole.s(tag).set(task_id=f"away-{tag}")
    if size == 2:
        body = app.group([body, app.whole.s(tag)])
    result = app.chord([app.part.s(tag, 1), app.part.s(tag, 2)], body).delay()
    assert result.get(timeout=60) == (3 if size == 1 else [3, 3])
    assert left(fleet, tag) == {"part 1": 1, "part 2": 1, "whole [1, 2]": size}


def test_an_inner_chord_whose_member_is_killed_takes_the_outer_one_along(fleet: Fleet, tag: str) -> None:
    app = fleet.app
    inner = app.chord([app.part.s(tag, 1), app.part.s(tag, 2, "dies")], app.plus.s(tag, 10))
    result = app.chord([inner, app.part.s(tag, 3)], app.whole.s(tag)).delay()
    assert result.get(timeout=60) == 16
    assert left(fleet, tag) == {"part 1": 1, "part 2": 2, "plus 10": 1, "part 3": 1, "whole [13, 3]": 1}


def test_members_that_share_a_key_run_once_and_each_has_the_value(fleet: Fleet, tag: str) -> None:
    app = fleet.app
    result = app.chord([app.once.s(tag, 4), app.once.s(tag, 4), app.part.s(tag, 1)], app.whole.s(tag)).delay()
    assert result.get(timeout=60) == 9
    assert left(fleet, tag) == {"once 4": 1, "part 1": 1, "whole [4, 4, 1]": 1}


def test_a_dead_member_fails_its_chord_and_the_errback_is_called_once(fleet: Fleet, tag: str) -> None:
    app = fleet.app
    body = app.whole.s(tag).on_error(app.errback.s(tag))
    result = app.chord([app.part.s(tag, 1), app.part.s(tag, 2, "fails")], body).delay()
    with pytest.raises((ChordError, ValueError)):
        result.get(timeout=60)
    eventually(lambda: left(fleet, tag)["errback"], what="the errback")
    assert left(fleet, tag) == {"part 1": 1, "part 2": 1, "errback": 1}


def test_a_cancelled_member_fails_its_chord(fleet: Fleet, tag: str) -> None:
    app = fleet.app
    members = [app.part.s(tag, 1), app.part.s(tag, 2, "waits").set(task_id=f"waits-{tag}")]
    result = app.chord(members, app.whole.s(tag)).delay()
    eventually(lambda: f"{tag} part 2" in fleet.marks(), what="the member runs")
    app.app.AsyncResult(f"waits-{tag}").revoke()
    with pytest.raises((ChordError, TaskRevokedError)):
        result.get(timeout=60)
    assert fleet.settled(f"waits-{tag}").state.value == "cancelled"
    assert left(fleet, tag) == {"part 1": 1, "part 2": 1}


def test_a_chain_goes_on_once_over_killed_steps_with_its_links(fleet: Fleet, tag: str) -> None:
    app = fleet.app
    steps = [app.part.s(tag, 1, "dies"), app.plus.s(tag, 2, "dies").set(link=app.part.si(tag, 9)), app.plus.s(tag, 3)]
    result = app.chain(*steps).delay()
    assert result.get(timeout=60) == 6
    assert left(fleet, tag) == {"part 1": 2, "plus 2": 2, "part 9": 1, "plus 3": 1}


def test_a_dead_step_fails_the_rest_of_its_chain_and_its_errback_is_called_once(fleet: Fleet, tag: str) -> None:
    app = fleet.app
    dead = app.part.si(tag, 2, "fails").on_error(app.errback.s(tag))
    result = app.chain(app.part.s(tag, 1), dead, app.plus.s(tag, 3)).delay()
    with pytest.raises(ValueError, match=tag):
        result.get(timeout=60)
    eventually(lambda: result.state == "FAILURE", what="the rest has failed too")
    eventually(lambda: left(fleet, tag)["errback"], what="the errback")
    assert left(fleet, tag) == {"part 1": 1, "part 2": 1, "errback": 1}


def test_who_waits_for_a_chain_is_told_of_its_cancelled_step(fleet: Fleet, tag: str) -> None:
    app = fleet.app
    step = app.part.si(tag, 2, "waits").set(task_id=f"waits-{tag}")
    result = app.chain(app.part.s(tag, 1), step, app.plus.s(tag, 3)).delay()
    eventually(lambda: f"{tag} part 2" in fleet.marks(), what="the step runs")
    app.app.AsyncResult(f"waits-{tag}").revoke()
    with pytest.raises(TaskRevokedError):
        result.get(timeout=60)
    assert left(fleet, tag) == {"part 1": 1, "part 2": 1}
    assert result.state == "PENDING"


def test_a_chain_of_groups_goes_on_over_a_killed_member_of_each(fleet: Fleet, tag: str) -> None:
    app = fleet.app
    first = app.group(app.part.s(tag, 1), app.part.s(tag, 2, "dies"))
    second = app.group(app.plus.s(tag, 10), app.plus.s(tag, 20, "dies"))
    result = app.chain(first, second, app.whole.s(tag)).delay()
    assert result.get(timeout=60) == 36
    assert left(fleet, tag) == {
        "part 1": 1, "part 2": 2, "plus 10": 1, "plus 20": 2, "whole [13, 23]": 1,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("what", "value", "entries"),
    [
        ("chain", 3, {"part 1": 1, "plus 2": 2}),
        ("group", [1, 2], {"part 1": 1, "part 2": 2}),
        ("chord", 3, {"part 1": 1, "part 2": 2, "plus 0": 1}),
    ],
)
def test_what_replaces_a_job_ends_it_though_a_member_is_killed(
    fleet: Fleet, tag: str, what: str, value: object, entries: dict[str, int]
) -> None:
    result = fleet.app.becomes.delay(tag, what)
    assert result.get(timeout=60) == value
    assert left(fleet, tag) == {f"becomes {what}": 1, **entries}
    assert fleet.settled(result.id).state.value == "succeeded"


def test_a_handle_knows_its_parents_and_its_children_after_a_kill(fleet: Fleet, tag: str) -> None:
    app = fleet.app
    last = app.chain(app.part.s(tag, 1, "dies"), app.plus.s(tag, 2), app.plus.s(tag, 3)).delay()
    assert last.get(timeout=60) == 6
    first = last.parent.parent
    assert [child.id for child in first.children] == [last.parent.id]
    assert [child.id for child in last.parent.children] == [last.id]
    spawned = app.spawns.delay(tag)
    child = spawned.get(timeout=60)
    assert [each.id for each in spawned.children] == [child]
    # the first attempt was killed after its send, which was no part of its end: that child runs as well
    assert left(fleet, tag)["spawns"] == 2
    fleet.all_quiet()
