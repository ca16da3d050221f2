"""From facts to blockers: each code, when it is said, when it is not, and whether somebody has to do something."""

from __future__ import annotations

import itertools
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from typing import Any, cast

import pytest

from celery_guard.errors import StoreUnavailableError
from celery_guard.flow.admin.blocker import CODES, Blocker, Facts, Live, Subject
from celery_guard.flow.admin.explain import LATE, explain_job, explain_system
from celery_guard.flow.admin.facts import gather
from celery_guard.job.progress import Progress
from celery_guard.job.replay import Replay, ReplayState
from celery_guard.job.row import Job
from celery_guard.job.state import ENDED, Kind, Reason, State
from celery_guard.store.protocol import Backlog, Heartbeat

NOW = datetime(2026, 3, 1, 14, 30, tzinfo=timezone.utc)
SOON, AGO = NOW + timedelta(minutes=5), NOW - timedelta(seconds=10)
LONG_AGO = NOW - timedelta(minutes=30)
RELAY = Heartbeat("relay:0", "host:1", AGO, SOON, live=True)
GONE = replace(RELAY, live=False, until=LONG_AGO)


def job(state: State = State.PENDING, reason: Reason | None = Reason.NEW, **given: Any) -> Job:
    values: dict[str, Any] = {"kind": Kind.RUN, "created": LONG_AGO, "due": AGO, "told": state in ENDED}
    return Job(id="job-1", task="shop.charge", queue="slow", state=state, reason=reason, **{**values, **given})


def facts(**given: Any) -> Facts:
    return Facts(**{"now": NOW, "relays": (RELAY,), "max_publications": 5, **given})


def queue(**given: Any) -> dict[str, Backlog]:
    return {"slow": Backlog("slow", **given)}


def codes(found: list[Blocker]) -> list[str]:
    return [blocker.code.removeprefix("EXPLAIN-") + ("!" if blocker.wrong else "") for blocker in found]


def of_job(subject: Job, holder: Job | None = None, known: bool = True, **given: Any) -> list[str]:
    return codes(explain_job(facts(**given), Subject(job=subject, holder=holder, known=known)))


def replay(state: ReplayState, created: datetime = AGO) -> Replay:
    return Replay("5c1d", state, "ann", "operator", "here", "r", "all", created, total=4198, why="1 of 1 failed")


@pytest.mark.parametrize(
    ("state", "created", "system", "letter"),
    [
        (ReplayState.STOPPED, AGO, ["150!"], ["150!", "192"]),
        (ReplayState.PAUSED, LONG_AGO, ["150"], ["150", "192"]),
        (ReplayState.BUILDING, AGO, ["150"], ["150", "192"]),
        (ReplayState.BUILDING, LONG_AGO, ["150!"], ["150!", "192"]),
        (ReplayState.RUNNING, AGO, [], ["151", "192"]),
    ],
)
def test_a_replay_that_does_not_go_on_is_said_of_the_system_and_of_a_letter_in_it(
    state: ReplayState, created: datetime, system: list[str], letter: list[str]
) -> None:
    one = replay(state, created)
    assert codes(explain_system(facts(replays=(one,)))) == system
    found = explain_job(facts(), Subject(job=job(State.DEAD, due=None), replays=(one,)))
    assert codes(found) == letter
    assert "5c1d" in found[0].what
    assert found[0].next == ("guard", "dlq", "replays", "5c1d")


def test_a_replay_that_runs_needs_a_relay() -> None:
    one = replay(ReplayState.RUNNING)
    assert codes(explain_system(facts(relays=(GONE,), replays=(one,)))) == ["101!"]
    letter = Subject(job=job(State.DEAD, due=None), replays=(one,))
    assert codes(explain_job(facts(relays=(GONE,)), letter)) == ["151", "101!", "192"]


SENT = job(State.SENT, sent=AGO, due=SOON, publications=1)
LONG_SENT = replace(SENT, sent=LONG_AGO)
RUNS = job(State.RUNNING, reason=None, started=AGO, due=SOON, owner="worker", fence=2)


@pytest.mark.parametrize(
    ("subject", "given", "expected"),
    [
        # it waits
        (job(due=SOON), {}, ["110"]),
        (job(due=SOON, reason=Reason.RETRY), {}, ["110"]),
        (job(due=SOON), {"relays": ()}, ["110"]),
        (job(), {}, ["111"]),
        (job(due=LONG_AGO), {}, ["111!"]),
        (job(), {"relays": ()}, ["101!", "111"]),
        (job(due=LONG_AGO), {"relays": (GONE,)}, ["101!", "111!"]),
        (job(due=LONG_AGO), {"live": Live(broker_out="refused")}, ["111!", "103!"]),
        (job(due=SOON, refusals=2), {}, ["112!"]),
        (job(due=LONG_AGO, refusals=2), {}, ["112!", "111!"]),
        (job(due=SOON, deadline=AGO), {}, ["113", "110"]),
        (job(due=SOON, deadline=SOON), {}, ["110"]),
        (job(due=SOON, reason=Reason.HELD_LIMIT), {}, ["141"]),
        (job(due=SOON, reason=Reason.HELD_BRAKE), {}, ["142"]),
        (job(due=SOON, reason=Reason.HELD_VERSION), {}, ["143"]),
        (job(due=SOON, reason=Reason.HANDED_OVER), {}, ["144"]),
        (job(due=SOON, reason=Reason.HELD_ENCRYPTION), {}, ["145"]),
        # it is published
        (SENT, {"backlog": queue(sent=1, oldest_sent=AGO, running=3, last_start=AGO)}, ["122"]),
        (SENT, {}, ["122"]),
        (LONG_SENT, {}, ["121!"]),
        (LONG_SENT, {"backlog": queue(sent=1, oldest_sent=LONG_AGO, last_start=LONG_AGO)}, ["121!"]),
        (LONG_SENT, {"backlog": queue(sent=1, oldest_sent=LONG_AGO, last_start=AGO)}, ["122"]),
        (LONG_SENT, {"backlog": queue(sent=1, oldest_sent=LONG_AGO, running=1, last_start=LONG_AGO)}, ["122"]),
        (LONG_SENT, {"backlog": queue(sent=1, running=1, lapsed=1, last_start=LONG_AGO)}, ["121!"]),
        (SENT, {"live": Live(consumers={})}, ["120!"]),
        (SENT, {"live": Live(consumers={"fast": ("w",)})}, ["120!"]),
        (SENT, {"live": Live(consumers={"slow": ("w",)})}, ["122"]),
        (LONG_SENT, {"live": Live(consumers={"slow": ("w",)})}, ["121!"]),
        (SENT, {"live": Live(broker_out="refused")}, ["103!", "122"]),
        (SENT, {"relays": ()}, ["101!", "122"]),
        (replace(SENT, publications=3), {}, ["122", "123"]),
        (replace(SENT, publications=5), {}, ["122", "123!"]),
        (replace(SENT, deadline=AGO), {}, ["113", "122"]),
        # it runs
        (RUNS, {}, ["170"]),
        (RUNS, {"relays": ()}, ["170"]),
        (replace(RUNS, cancel=True), {}, ["170", "172"]),
        (replace(RUNS, deadline=AGO), {}, ["170", "113"]),
        (replace(RUNS, due=AGO), {}, ["171"]),
        (replace(RUNS, due=LONG_AGO), {}, ["171!"]),
        (replace(RUNS, due=AGO), {"relays": ()}, ["171", "101!"]),
        # it has ended, or nobody knows
        (job(State.UNKNOWN, reason=None, started=AGO), {}, ["180!"]),
        (job(State.SUCCEEDED, reason=None, finished=AGO), {}, ["190"]),
        (job(State.CANCELLED, reason=None, finished=AGO), {}, ["190"]),
        (job(State.RESOLVED, finished=AGO), {}, ["190"]),
        (job(State.DROPPED, finished=AGO), {}, ["190"]),
        (job(State.DEAD, reason=Reason.EXHAUSTED, finished=AGO), {}, ["192!"]),
        (job(State.SUCCEEDED, reason=None, told=False, finished=AGO), {}, ["190", "191"]),
        (job(State.SUCCEEDED, reason=None, told=False, finished=AGO), {"relays": ()}, ["190", "191", "101!"]),
        (job(State.SUCCEEDED, reason=None, told=False, kind=Kind.CARRIED), {}, ["190"]),
    ],
)  # fmt: skip
def test_a_job_is_explained(subject: Job, given: dict[str, Any], expected: list[str]) -> None:
    assert of_job(subject, **given) == expected


@pytest.mark.parametrize(("due", "code"), [(SOON, "EXPLAIN-170"), (LONG_AGO, "EXPLAIN-171")])
def test_how_far_a_running_job_has_said_it_is_and_how_long_ago_is_said(due: datetime, code: str) -> None:
    subject = replace(RUNS, due=due, progress=Progress(412, 1000, "page 7", NOW - timedelta(seconds=320)))
    [found] = explain_job(facts(), Subject(job=subject))
    assert found.code == code
    assert found.what.endswith(". Its progress, 320 s ago: 412 of 1000 (41 %): page 7.")


@pytest.mark.parametrize("due", [SOON, LONG_AGO])
def test_that_a_running_job_has_killed_its_process_before_is_said(due: datetime) -> None:
    [found] = explain_job(facts(), Subject(job=replace(RUNS, due=due, crashes=2)))
    assert found.what.endswith(" It lost its process 2 times before; when that is too often, it is dead.")


def test_a_follower_waits_for_the_job_that_holds_its_key() -> None:
    follower = job(reason=Reason.HELD_KEY, holder="job-0", due=SOON)
    holder = replace(RUNS, id="job-0")
    [found] = explain_job(facts(), Subject(job=follower, holder=holder))
    assert (found.code, found.next) == ("EXPLAIN-140", ("guard", "explain", "job-0"))
    assert of_job(follower, replace(holder, state=State.SUCCEEDED)) == ["110"]
    assert of_job(follower, None) == ["110"]
    assert of_job(replace(follower, due=LONG_AGO), replace(holder, state=State.SUCCEEDED)) == ["111!"]


@pytest.mark.parametrize("subject", [job(), SENT])
def test_a_task_that_nobody_knows_is_said_first(subject: Job) -> None:
    assert of_job(subject, known=False)[0] == "130!"


def test_what_has_ended_is_not_judged_by_its_task() -> None:
    assert of_job(job(State.SUCCEEDED, reason=None), known=False) == ["190"]


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({}, []),
        ({"relays": ()}, []),
        ({"backlog": queue(pending=1, oldest_due=AGO)}, []),
        ({"backlog": queue(pending=1, oldest_due=AGO), "relays": ()}, ["101!"]),
        ({"backlog": queue(pending=1, oldest_due=LONG_AGO)}, ["111!"]),
        ({"backlog": queue(pending=1, oldest_due=LONG_AGO), "relays": (GONE,)}, ["101!", "111!"]),
        ({"backlog": queue(running=2, last_start=LONG_AGO)}, []),
        ({"backlog": queue(running=2, last_start=LONG_AGO), "relays": ()}, ["101!"]),
        ({"backlog": queue(running=2, lapsed=1, oldest_lapse=AGO)}, []),
        ({"backlog": queue(running=2, lapsed=1, oldest_lapse=LONG_AGO)}, ["171!"]),
        ({"backlog": queue(sent=4, oldest_sent=LONG_AGO, last_start=LONG_AGO)}, ["121!"]),
        ({"backlog": queue(sent=4, oldest_sent=LONG_AGO)}, ["121!"]),
        ({"backlog": queue(sent=4, oldest_sent=LONG_AGO, last_start=AGO)}, []),
        ({"backlog": queue(sent=4, oldest_sent=LONG_AGO, last_start=LONG_AGO, running=2)}, []),
        ({"backlog": queue(sent=4, oldest_sent=AGO)}, []),
        ({"backlog": queue(sent=4, oldest_sent=AGO), "live": Live(consumers={})}, ["102!", "120!"]),
        ({"backlog": queue(sent=4, oldest_sent=AGO), "live": Live(consumers={"fast": ("w",)})}, ["120!"]),
        ({"backlog": queue(sent=4, oldest_sent=AGO), "live": Live(broker_out="refused")}, ["103!"]),
        ({"live": Live(broker_out="refused")}, []),
        ({"unknown": (job(State.UNKNOWN), job(State.UNKNOWN))}, ["180!"]),
        ({"store_out": "[GUARD-302] old"}, ["100!"]),
    ],
)  # fmt: skip
def test_the_system_is_explained(given: dict[str, Any], expected: list[str]) -> None:
    assert codes(explain_system(facts(**given))) == expected


def test_a_stalled_queue_is_named_with_how_long_and_the_last_start() -> None:
    last = LONG_AGO
    stalled = queue(sent=4, oldest_sent=NOW - timedelta(seconds=320), last_start=last)
    [found] = explain_system(facts(backlog=stalled))
    assert found.what == f"Stalled: queue slow, the oldest for 320 s, last start {last.astimezone():%Y-%m-%d %H:%M:%S}."
    assert (found.since, found.next) == (last, ("worker", "-Q", "slow"))


@pytest.mark.parametrize(("waited", "late"), [(LATE, False), (LATE + timedelta(microseconds=1), True)])
def test_what_is_late_is_late_from_one_moment_on(waited: timedelta, late: bool) -> None:
    assert bool(explain_system(facts(backlog=queue(pending=1, oldest_due=NOW - waited)))) is late


def test_since_when_there_is_no_relay_is_said_where_it_is_known() -> None:
    waits = queue(pending=1, oldest_due=AGO)
    [found] = explain_system(facts(backlog=waits, relays=(GONE, replace(GONE, until=LONG_AGO - LATE))))
    assert (found.since, found.next) == (LONG_AGO, ("guard", "relay"))
    [found] = explain_system(facts(backlog=waits, relays=()))
    assert found.since is None
    assert "not known" in found.what


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"relays": ()}, []),
        ({"relays": (), "own": {State.SUCCEEDED: 7}}, []),
        ({"relays": (), "own": {State.PENDING: 1}}, ["101!"]),
        ({"own": {State.RUNNING: 1}, "live": Live(broker_out="host db-7: refused")}, ["103!"]),
        ({"own": {State.SENT: 1}, "live": Live(consumers={})}, ["102!"]),
        ({"unknown": (job(State.UNKNOWN),)}, ["180!"]),
        ({"replays": (replay(ReplayState.STOPPED),)}, ["150!"]),
    ],
)
def test_an_actor_of_one_tenant_is_told_what_is_its_own_and_nothing_of_what_others_have_in_a_queue(
    given: dict[str, Any], expected: list[str]
) -> None:
    others = queue(pending=61, sent=62, running=63, oldest_due=LONG_AGO, oldest_sent=LONG_AGO, last_start=LONG_AGO)
    found = explain_system(facts(**{"own": {}, "backlog": others, **given}))
    assert codes(found) == expected
    assert not any(said in blocker.what for blocker in found for said in ("slow", "61", "62", "63", "db-7"))


@pytest.mark.parametrize(
    ("live", "code"),
    [(Live(consumers={}), "120"), (Live(), "122"), (Live(consumers={"slow": ("w",)}, depths={"slow": 44}), "122")],
)
def test_of_one_job_an_actor_of_its_tenant_is_told_why_it_waits_and_no_numbers_of_its_queue(
    live: Live, code: str
) -> None:
    others = queue(sent=42, running=43, oldest_sent=LONG_AGO, last_start=LONG_AGO)
    [found] = explain_job(facts(own={State.SENT: 1}, backlog=others, live=live), Subject(job=SENT))
    assert found.code == f"EXPLAIN-{code}"
    assert "slow" in found.what
    assert not any(said in found.what for said in ("43", "44", "1800 s", "last start"))
    assert found.since in (None, AGO)


def test_every_answer_has_a_code_of_the_table_and_none_is_empty() -> None:
    seen = set()
    states = [(state, reason) for state in State for reason in (None, *Reason)]
    for (state, reason), due, relays, broker in itertools.product(
        states, (SOON, LONG_AGO, None), ((), (RELAY,)), ("", "out")
    ):
        subject = job(state, reason, due=due, sent=LONG_AGO, started=LONG_AGO, told=False, publications=7, refusals=1)
        found = explain_job(facts(relays=relays, live=Live(broker_out=broker)), Subject(job=subject, known=False))
        assert found, (state, reason)
        assert all(blocker.what.endswith((".", broker)) for blocker in found)
        seen |= {blocker.code for blocker in found}
    assert seen <= {*CODES}
    assert {"EXPLAIN-101", "EXPLAIN-103", "EXPLAIN-130", "EXPLAIN-141", "EXPLAIN-180", "EXPLAIN-192"} <= seen


def test_what_a_store_that_is_out_says_is_one_line() -> None:
    class Out:
        def check(self) -> None:
            raise StoreUnavailableError("connection refused\n\tIs the server running?\n")

    unused: Any = None
    assert gather(cast(Any, Out()), unused, unused).store_out == "[GUARD-301] connection refused Is the server running?"
