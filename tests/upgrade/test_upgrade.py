"""The guard is upgraded under a fleet at work, in both orders: nothing that was accepted is lost, and nothing is done twice."""

from __future__ import annotations

import pytest

from tests.integration.fleet import eventually

from .conftest import SQL, TwoVersions

pytestmark = [pytest.mark.integration, pytest.mark.timeout(600)]

#: What a batch leaves once everything has gone well, each of it once.
_LEFT = (
    *(f"once {{}}{n}" for n in range(5)),
    "once {} later",
    "once {} first",
    "once {} next",
    "again {}",
    "mended {}",
)


def left_by(*batches: str) -> list[str]:
    return [what.format(batch) for batch in batches for what in _LEFT]


def wait_for(fleet: TwoVersions, *marks: str) -> None:
    eventually(lambda: {*marks} <= fleet.by().keys(), seconds=90, what=f"{marks}")


def upgrade(fleet: TwoVersions) -> None:
    before = fleet.rows.version()
    done = fleet.guard("new", "store", "upgrade")
    assert done.returncode == 0, done.stderr
    assert (before, fleet.rows.version()) == fleet.rows.versions


def begin(fleet: TwoVersions, batch: str) -> None:
    """The fleet of the last release at work: a body that runs, retries on their way, a dead letter, jobs for later."""
    fleet.publish("old", "m.hold.delay('it')")
    fleet.send("old", batch)
    fleet.worker("old").says(" ready.")
    wait_for(fleet, "held it", f"once {batch}0", f"once {batch} next")
    eventually(lambda: fleet.rows.states()["dead"] == 1, seconds=60, what="a dead letter")


def end(fleet: TwoVersions, *batches: str) -> None:
    """The outage is over and the bug is mended: everything comes to its end, once."""
    fleet.say("healed")
    fleet.say("go")
    eventually(lambda: fleet.rows.states()["dead"] == len(batches), seconds=90, what="the dead letters")
    eventually(lambda: {*fleet.rows.states()} == {"succeeded", "dead"}, seconds=90, what="all at their end")
    fleet.say("mended")
    dead = fleet.publish(
        "new", "print(*(job.id for job in m.guard.store.jobs(states=[m.celery_guard.State.DEAD], limit=100)))"
    )
    done = fleet.guard("new", "dlq", "replay", *dead.stdout.split(), "--reason", "mended")
    assert done.returncode == 0, done.stdout + done.stderr
    eventually(lambda: {*fleet.rows.states()} == {"succeeded"}, seconds=90, what="all succeeded")
    by = {what: codes for what, codes in fleet.by().items() if not what.startswith("charged")}
    assert {what: len(codes) for what, codes in by.items()} == dict.fromkeys(
        [*left_by(*batches), "held it", "let go it"], 1
    )
    assert fleet.charged() == dict.fromkeys(batches, 1)


def test_new_tables_first_under_old_workers_then_new_workers_beside_them(fleet: TwoVersions) -> None:
    begin(fleet, "a")
    relay = fleet.start("old", "guard", "relay")
    # one that starts on the new tables ends at once: the worker's and this one are at work before
    alive = "print(sum(b.live for b in m.guard.store.heartbeats() if b.name.startswith('relay:')))"
    eventually(lambda: fleet.publish("old", alive).stdout.strip() == "2", seconds=60, what="two relays")
    upgrade(fleet)
    # the old fleet goes on, on the new tables, also with what a new publisher sends
    fleet.send("old", "b")
    fleet.send("new", "c")
    wait_for(fleet, *(f"once {batch}{n}" for batch in "bc" for n in range(5)))
    assert {*fleet.by()["once c0"], *fleet.by()["once b4"]} == {"old"}
    new = fleet.worker("new")
    new.says(" ready.")
    fleet.send("old", "d")
    wait_for(fleet, "once d4")
    # and the new one takes over; what the old one holds it ends itself
    fleet.say("go")
    wait_for(fleet, "let go it")
    assert fleet.by()["let go it"] == ["old"]
    for process in fleet.of("old"):
        process.terminate(60)
    assert relay.process.returncode == 0
    fleet.send("old", "e")
    wait_for(fleet, "once e4", "once e next")
    assert fleet.by()["once e0"] == ["new"]
    end(fleet, *"abcde")
    assert {fleet.by()[f"mended {batch}"][0] for batch in "abcde"} == {"new"}


@pytest.mark.parametrize("fleet", SQL, indirect=True)
def test_new_code_first_is_refused_until_the_tables_are_upgraded_and_its_publishers_lose_nothing(
    fleet: TwoVersions,
) -> None:
    begin(fleet, "a")
    beat = ("beat", "-s", str(fleet.folder / "schedule"))
    for words in (("worker", "-P", "solo"), ("guard", "relay"), beat):
        refused = fleet.start("new", *words)
        assert refused.process.wait(100) != 0
        assert "guard store upgrade" in refused.output()
        assert "GUARD-302" in refused.output()
    # a publisher looks at no version: what it sends needs nothing of the new tables
    fleet.send("new", "b")
    wait_for(fleet, "once b4", "once b next")
    assert fleet.by()["once b0"] == ["old"]
    upgrade(fleet)
    fleet.worker("new").says(" ready.")
    fleet.send("new", "c")
    wait_for(fleet, "once c4")
    end(fleet, *"abc")


@pytest.mark.parametrize("fleet", ["redis"], indirect=True)
def test_new_code_first_works_beside_the_old_one_where_the_store_is_as_it_was(fleet: TwoVersions) -> None:
    begin(fleet, "a")
    new = fleet.worker("new")
    new.says(" ready.")
    # each publishes what the other may run
    fleet.send("new", "b")
    fleet.send("old", "c")
    wait_for(fleet, *(f"once {batch}{n}" for batch in "bc" for n in range(5)))
    fleet.say("go")
    wait_for(fleet, "let go it")
    assert fleet.by()["let go it"] == ["old"]
    # the new one is taken back: the old one goes on with what it has left
    new.terminate(60)
    fleet.send("new", "d")
    wait_for(fleet, "once d4", "once d next")
    assert {*fleet.by()["once d0"], *fleet.by()["once d next"]} == {"old"}
    # and for good
    fleet.worker("new").says(" ready.")
    for process in fleet.of("old"):
        process.terminate(60)
    upgrade(fleet)
    fleet.send("old", "e")
    wait_for(fleet, "once e4")
    assert fleet.by()["once e0"] == ["new"]
    end(fleet, *"abcde")
