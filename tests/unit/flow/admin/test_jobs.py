"""``guard.jobs`` over a store: who sees what, what a cancel touches, how the unknown is settled, and what is told of a job."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
from pydantic import TypeAdapter

from celery_guard import JobStatus
from celery_guard.contract.contract import Effective
from celery_guard.contract.key import key_hash
from celery_guard.errors import ConfirmationNeeded, MoveRefused, NotAllowed, NotFound, ReasonMissing
from celery_guard.flow.admin.actor import Actor, Role, by_role
from celery_guard.flow.admin.audit import Authority
from celery_guard.flow.admin.blocker import Live
from celery_guard.flow.admin.jobs import Jobs
from celery_guard.flow.admin.which import Which
from celery_guard.job.audit import Outcome
from celery_guard.job.progress import progress_text
from celery_guard.job.row import StoredResult
from celery_guard.job.state import Kind, Reason, State
from celery_guard.job.verdict import Granted
from celery_guard.settings import Settings
from celery_guard.store import open_store
from celery_guard.store.protocol import Store
from celery_guard.testing.conformance.builders import LONG, NONE, dead, new_job, retried, succeeded
from celery_guard.testing.conformance.moves import accept, claim, die, found, lease_of, start, succeed, take

ANN = Actor("ann", origin="here")
ACME = Actor("bob", tenant="acme", origin="here")
VIEWER = Actor("eve", Role.VIEWER, origin="here")


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    store = open_store(f"sqlite:///{tmp_path / 'guard.db'}")
    store.upgrade()
    yield store
    store.close()


class Nobody:
    """No broker and no worker: nothing is known of either."""

    def ask(self, queues: Any) -> Live:
        return Live()


CONTRACTS = {
    "shop.charge": Effective(task="shop.charge", key="order_id"),
    "shop.ship": Effective(task="shop.ship", key=("order_id", "part")),
    "shop.sign": Effective(task="shop.sign", key=lambda *args, **kwargs: args),
}


@pytest.fixture
def jobs(store: Store) -> Jobs:
    return Jobs(
        store, Authority(store, by_role, 3), Settings(store="sqlite://"), Nobody(),
        lambda name: CONTRACTS.get(name, Effective(task=name)), lambda name: True,
        lambda id, value: StoredResult(json.dumps(value).encode(), "application/json", "utf-8"),
    )  # fmt: skip


def outcomes(store: Store, **given: Any) -> list[str]:
    return [f"{row.action} {row.outcome}" for row in reversed(store.audited(**given))]


# -- who sees what ----------------------------------------------------------------------------------------------------


def test_a_tenants_actor_sees_and_touches_that_tenant_only(jobs: Jobs, store: Store) -> None:
    mine, theirs = new_job(tenant="acme"), new_job(tenant="other")
    accept(store, mine, theirs, new_job())
    assert [job.id for job in jobs.list(by=ACME)] == [mine.id]
    assert len(jobs.list(by=ANN)) == 3
    with pytest.raises(NotAllowed):
        jobs.list(Which(tenant="other"), by=ACME)
    with pytest.raises(NotFound) as hidden:
        jobs.get(theirs.id, by=ACME)
    with pytest.raises(NotFound) as missing:
        jobs.get("job nobody has", by=ACME)
    assert str(hidden.value).replace(theirs.id, "X") == str(missing.value).replace("job nobody has", "X")
    answers = jobs.cancel([mine.id, theirs.id], by=ACME, reason="wrong file")
    assert [(answer.answer, answer.state) for answer in answers] == [("cancelled", State.CANCELLED), ("too late", None)]
    assert found(store, theirs.id).state is State.PENDING
    assert jobs.plan_cancel([theirs.id], by=ACME).ids == ()


def test_a_viewer_looks_and_changes_nothing(jobs: Jobs, store: Store) -> None:
    job = new_job()
    accept(store, job)
    assert jobs.get(job.id, by=VIEWER).id == job.id
    assert jobs.explain(job.id, by=VIEWER)
    with pytest.raises(NotAllowed):
        jobs.cancel([job.id], by=VIEWER, reason="please")
    assert found(store, job.id).state is State.PENDING
    assert outcomes(store) == ["jobs.cancel refused"]


# -- an application's own users ---------------------------------------------------------------------------------------


def test_a_user_is_told_how_a_job_stands_and_of_another_tenants_nothing(jobs: Jobs, store: Store) -> None:
    job = new_job(tenant="acme")
    accept(store, job)
    status = jobs.status(job.id, scope="acme")
    assert status is not None
    assert (status.status, status.is_over, status.started) == ("accepted", False, None)
    for scope in ("other", None, "", "ACME"):
        assert jobs.status(job.id, scope=scope) is None
    assert jobs.status("nobody", scope="acme") is None
    granted = claim(store, job.id)
    status = jobs.status(job.id, scope="acme")
    assert status is not None
    assert (status.status, status.finished) == ("running", None)
    assert store.settle(succeeded(granted))
    status = jobs.status(job.id, scope="acme")
    assert status is not None
    assert (status.status, status.is_over) == ("done", True)
    assert status.finished is not None


def test_a_user_is_told_how_far_a_job_is_until_its_next_attempt_starts(jobs: Jobs, store: Store) -> None:
    granted, half = start(store), progress_text(5, 10, "page 5", NONE)

    def told() -> tuple[str, str | None]:
        status = jobs.status(granted.id, scope=None)
        assert status is not None
        return status.status, None if status.progress is None else str(status.progress)

    assert told() == ("running", None)
    store.renew([lease_of(granted)], LONG, {lease_of(granted): half})
    assert told() == ("running", "5 of 10 (50 %): page 5")
    assert store.settle(retried(granted))
    assert told() == ("accepted", "5 of 10 (50 %): page 5")
    again = claim(store, granted.id)
    assert told() == ("running", None)
    assert store.settle(succeeded(again, progress=progress_text(10, 10, "", NONE)))
    assert told() == ("done", "10 of 10 (100 %)")


def test_a_status_is_json_as_a_web_framework_makes_it_of_its_types(jobs: Jobs, store: Store) -> None:
    granted = start(store)
    assert store.settle(succeeded(granted, progress=progress_text(5, 10, "page 5", NONE)))
    status = jobs.status(granted.id, scope=None)
    assert status is not None
    assert status.started is not None
    kind = TypeAdapter(JobStatus)
    told = json.loads(kind.dump_json(kind.validate_python(asdict(status))))
    assert (told["status"], told["progress"].pop("at")[:19]) == ("done", status.started.isoformat()[:19])
    assert repr(told["progress"]) == "{'done': 5, 'total': 10, 'note': 'page 5'}"


def test_without_a_tenant_only_jobs_that_have_none_are_seen(jobs: Jobs, store: Store) -> None:
    job = new_job()
    accept(store, job)
    assert jobs.status(job.id, scope=None) is not None
    assert jobs.status(job.id, scope="acme") is None


def test_every_state_is_one_of_five_words(jobs: Jobs, store: Store) -> None:
    waiting, failed, unknown, carried = new_job(delay=LONG), die(store), _unknown(store), new_job(kind=Kind.CARRIED)
    accept(store, waiting)
    store.cancel(waiting.id)
    words = {id: jobs.status(id, scope=None) for id in (waiting.id, failed.id, unknown.id)}
    assert [status and status.status for status in words.values()] == ["cancelled", "failed", "running"]
    accept(store, carried)
    token = "relay"
    assert carried.id in [row.id for row in take(store, token=token)]
    store.sent(token, [carried.id], LONG)
    status = jobs.status(carried.id, scope=None)
    assert status is not None
    assert (status.status, status.finished) == ("accepted", None), "nobody hears how it ends"


# -- cancel -----------------------------------------------------------------------------------------------------------


def test_a_cancel_is_planned_on_frozen_ids(jobs: Jobs, store: Store) -> None:
    waiting = [new_job(task="shop.charge", tenant="acme"), new_job(task="shop.charge")]
    accept(store, *waiting, new_job(task="shop.mail"))
    done = succeed(store, new_job(task="shop.charge"))
    plan = jobs.plan_cancel(Which(task="shop.charge"), by=ANN)
    assert {*plan.ids} == {job.id for job in waiting}
    assert (plan.tasks, plan.tenants, plan.states) == ({"shop.charge": 2}, {"acme": 1, "": 1}, {"pending": 2})
    late = new_job(task="shop.charge")
    accept(store, late)
    ticks: list[int] = []
    answers = jobs.cancel(plan.ids, by=ANN, reason="wrong file", progress=ticks.append)
    assert [answer.answer for answer in answers] == ["cancelled", "cancelled"]
    assert ticks == [1, 2]
    assert found(store, late.id).state is State.PENDING, "it was accepted after the plan"
    assert found(store, done.id).state is State.SUCCEEDED


def test_a_plan_of_many_has_a_bound_and_says_so(jobs: Jobs, store: Store) -> None:
    accept(store, *(new_job() for _ in range(5)))
    plan = jobs.plan_cancel(Which(), by=ANN, most=4)
    assert (len(plan.ids), plan.more) == (4, True)
    assert jobs.plan_cancel(Which(), by=ANN, most=5).more is False


def test_more_than_may_be_touched_unasked_have_to_be_confirmed(jobs: Jobs, store: Store) -> None:
    ids = [new_job() for _ in range(4)]
    accept(store, *ids)
    names = [job.id for job in ids]
    for confirm in (None, 3):
        with pytest.raises(ConfirmationNeeded):
            jobs.cancel(names, by=ANN, reason="wrong file", confirm=confirm)
    with pytest.raises(ReasonMissing):
        jobs.cancel(names, by=ANN, reason=" ", confirm=4)
    assert store.counts() == {State.PENDING: 4}
    assert len(jobs.cancel(names, by=ANN, reason="wrong file", confirm=4)) == 4
    assert store.counts() == {State.CANCELLED: 4}


def test_a_cancel_is_written_down_before_and_after(jobs: Jobs, store: Store) -> None:
    job, done = new_job(), succeed(store)
    accept(store, job)
    jobs.cancel([job.id, done.id, "nobody"], by=ANN, reason="wrong file")
    assert outcomes(store) == ["jobs.cancel intended"] * 3 + ["jobs.cancel done"]
    assert store.audited(outcome=Outcome.DONE)[0].detail == "1 cancelled, 1 no such job, 1 too late"
    assert outcomes(store, job=job.id) == ["jobs.cancel intended"]


# -- settle -----------------------------------------------------------------------------------------------------------


def _unknown(store: Store, **given: Any) -> Granted:
    granted = start(store, new_job(**given))
    assert store.settle(dead(granted, state=State.UNKNOWN))
    return granted


def test_a_person_says_how_an_unknown_job_ended(jobs: Jobs, store: Store) -> None:
    granted = _unknown(store)
    job = jobs.settle(granted.id, State.SUCCEEDED, by=ANN, reason="the bank says so", value={"id": 7})
    assert job.state is State.SUCCEEDED
    outcome = store.outcome(granted.id)
    assert outcome is not None
    assert outcome[1] == StoredResult(b'{"id": 7}', "application/json", "utf-8")
    assert outcomes(store, job=granted.id) == ["jobs.settle intended", "jobs.settle done"]


def test_dead_by_hand_says_who_and_why(jobs: Jobs, store: Store) -> None:
    granted = _unknown(store)
    job = jobs.settle(granted.id, State.DEAD, by=ANN, reason="no such charge")
    assert (job.state, job.reason, job.failure_class) == (State.DEAD, Reason.FAILED, "unknown")
    assert job.failures[-1].message == "Settled as dead by ann: no such charge"


def test_pending_by_hand_runs_again(jobs: Jobs, store: Store) -> None:
    granted = _unknown(store)
    job = jobs.settle(granted.id, State.PENDING, by=ANN, reason="it did not go out")
    assert (job.state, job.reason) == (State.PENDING, Reason.REPLAY)
    assert claim(store, granted.id).fence > granted.fence


@pytest.mark.parametrize("state", [State.RUNNING, State.CANCELLED, State.SENT, State.RESOLVED, State.UNKNOWN])
def test_there_are_three_ways_out_of_unknown(jobs: Jobs, store: Store, state: State) -> None:
    granted = _unknown(store)
    with pytest.raises(MoveRefused, match="succeeded, dead, pending"):
        jobs.settle(granted.id, state, by=ANN, reason="so it is")
    assert found(store, granted.id).state is State.UNKNOWN


def test_what_is_not_unknown_is_not_settled(jobs: Jobs, store: Store) -> None:
    for id in (start(store).id, succeed(store).id, die(store).id):
        before = found(store, id)
        with pytest.raises(MoveRefused, match=before.state.value):
            jobs.settle(id, State.SUCCEEDED, by=ANN, reason="so it is")
        assert found(store, id) == before


def test_of_two_who_settle_one_is_refused(jobs: Jobs, store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    granted = _unknown(store)
    seen = found(store, granted.id)
    jobs.settle(granted.id, State.PENDING, by=ANN, reason="first")
    monkeypatch.setattr(store, "job", lambda id: seen)
    with pytest.raises(MoveRefused, match="meanwhile"):
        jobs.settle(granted.id, State.DEAD, by=ANN, reason="second")
    assert outcomes(store, job=granted.id)[-1] == "jobs.settle failed"


# -- key --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("task", "value", "values"),
    [
        ("shop.charge", 7, {"order_id": 7}),
        ("shop.charge", {"a": 1}, {"order_id": {"a": 1}}),
        ("shop.ship", {"order_id": 7, "part": "x"}, {"order_id": 7, "part": "x"}),
        ("shop.sign", "abc", {"key": "abc"}),
    ],
)
def test_a_key_is_worked_out_as_at_enqueue(jobs: Jobs, task: str, value: Any, values: dict[str, Any]) -> None:
    assert jobs.key(task, value, "acme") == key_hash(task, "acme", values)


@pytest.mark.parametrize(("task", "value"), [("shop.mail", 7), ("shop.ship", 7), ("shop.ship", {"order_id": 7})])
def test_a_key_that_the_contract_does_not_have_is_refused(jobs: Jobs, task: str, value: Any) -> None:
    with pytest.raises(MoveRefused, match=r"contract"):
        jobs.key(task, value)


# -- the story --------------------------------------------------------------------------------------------------------


def test_the_story_of_a_job_is_told_in_order(jobs: Jobs, store: Store) -> None:
    granted = start(store)
    assert store.settle(dead(granted))
    store.replay([granted.id])
    again = claim(store, granted.id, "worker-2")
    jobs.cancel([granted.id], by=ANN, reason="enough")
    assert store.settle(succeeded(again))
    told = jobs.timeline(granted.id, by=ANN)
    assert [moment.what for moment in told] == [
        "accepted", "failed", "started", "jobs.cancel intended", "jobs.cancel done", "succeeded", "asked to stop", "replayed", "told",
    ]  # fmt: skip
    times = [moment.at for moment in told if moment.at is not None]
    assert times == sorted(times)
    failed = told[1]
    assert (failed.worker, failed.fence) == ("worker@host", granted.fence)
    assert "permanent, shop.CardDeclined: card declined" in failed.detail
    assert "by ann: enough" in told[3].detail


def test_what_is_to_come_is_told_last(jobs: Jobs, store: Store) -> None:
    job = new_job(delay=LONG)
    accept(store, job)
    assert [moment.what for moment in jobs.timeline(job.id, by=ANN)] == ["accepted", "due"]
    granted = start(store)
    assert jobs.timeline(granted.id, by=ANN)[-1].what == "the lease ends"


# -- explain ----------------------------------------------------------------------------------------------------------


def test_explain_follows_a_job_through_the_store(jobs: Jobs, store: Store) -> None:
    def says(id: str) -> list[str]:
        return [blocker.code[-3:] for blocker in jobs.explain(id, by=ANN)]

    job = new_job(delay=LONG)
    accept(store, job)
    assert says(job.id) == ["110"]
    granted = start(store)
    assert says(granted.id) == ["170"]
    assert [blocker.code[-3:] for blocker in jobs.explain(by=ANN)] == ["101"], (
        "something runs, and nobody would bring it back"
    )
    assert store.hold("relay:0", "host:1", LONG)
    assert jobs.explain(by=ANN) == []
    assert store.settle(dead(granted))
    assert says(granted.id) == ["192"]
    with pytest.raises(NotFound):
        jobs.explain("nobody", by=ANN)


def test_a_store_without_tables_is_explained_too(tmp_path: Path, jobs: Jobs) -> None:
    empty = open_store(f"sqlite:///{tmp_path / 'empty.db'}")
    jobs._store = empty
    [found] = jobs.explain(by=ANN)
    empty.close()
    assert (found.code, found.wrong) == ("EXPLAIN-100", True)
    assert "GUARD-302" in found.what
