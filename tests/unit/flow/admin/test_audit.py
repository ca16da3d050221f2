"""Who may do what, and that whatever they do or try is written down."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from celery_guard.errors import ConfirmationNeeded, NotAllowed, ReasonMissing, StoreUnavailableError
from celery_guard.flow.admin.actor import Action, Actor, Role, Target, by_role
from celery_guard.flow.admin.audit import Audit, Authority
from celery_guard.job.audit import AuditEntry, Outcome
from celery_guard.store.protocol import Store

ANN = Actor("ann", Role.OPERATOR, origin="here")
ROOT = Actor("root", Role.ADMIN, origin="here")
EVE = Actor("eve", Role.OPERATOR, tenant="acme", origin="there")


def authority(store: Any, authorize: Callable[..., Any] = by_role, confirm_above: int = 100) -> Authority:
    return Authority(store, authorize, confirm_above)


def rows(store: Store) -> list[AuditEntry]:
    """The audit, oldest first."""
    return store.audited()[::-1]


def said(store: Store) -> list[tuple[str, str]]:
    return [(str(row.outcome), row.detail) for row in rows(store)]


@pytest.mark.parametrize("action", Action)
def test_an_admin_may_do_what_an_operator_may_and_an_operator_what_a_viewer_may(action: Action) -> None:
    may = [by_role(Actor("x", role), action, Target()) for role in (Role.VIEWER, Role.OPERATOR, Role.ADMIN)]
    assert may == sorted(may)
    assert may[-1]


def test_looking_takes_a_viewer_repairing_an_operator_and_what_cannot_be_undone_an_admin() -> None:
    def lowest(action: Action) -> Role:
        return next(role for role in Role if by_role(Actor("x", role), action, Target()))

    assert {lowest(action) for action in Action if str(action).endswith(".look")} == {Role.VIEWER}
    assert {lowest(a) for a in (Action.DLQ_REPLAY, Action.DLQ_RESOLVE, Action.JOBS_CANCEL)} == {Role.OPERATOR}
    assert {lowest(a) for a in (Action.DLQ_PURGE, Action.JOBS_REVEAL)} == {Role.ADMIN}


def test_an_action_is_written_before_it_is_done_and_after(store: Store) -> None:
    with authority(store).act(ANN, Action.JOBS_CANCEL, Target(("7e",), count=1), "wrong file") as acting:
        assert said(store) == [("intended", "")]
        acting.result = "1 cancelled"
    first, last = rows(store)
    assert (first.outcome, last.outcome, last.detail) == (Outcome.INTENDED, Outcome.DONE, "1 cancelled")
    for row in (first, last):
        assert (row.actor, row.role, row.origin, row.action) == ("ann", "operator", "here", "jobs.cancel")
        assert (row.target, row.job, row.reason) == ("7e (1 jobs)", "7e", "wrong file")
    assert first.entry == last.entry


def test_single_jobs_are_written_each_in_a_row_of_its_own(store: Store) -> None:
    with authority(store).act(ANN, Action.DLQ_RESOLVE, Target(which={"task": "t"}, count=2), "lost") as acting:
        acting.on([("a", "acme"), ("b", None)])
    assert [(row.job, row.tenant) for row in rows(store)] == [(None, None), ("a", "acme"), ("b", None), (None, None)]
    assert [row.job for row in store.audited(job="a")] == ["a"]


def test_an_action_that_ends_in_an_error_is_written_as_failed_without_what_the_error_met(store: Store) -> None:
    replay = authority(store).act(ANN, Action.DLQ_REPLAY, Target(("7e",)), "again")
    with pytest.raises(ValueError, match="4111"), replay:
        raise ValueError("card 4111")
    assert said(store) == [("intended", ""), ("failed", "ValueError")]


def test_a_process_that_is_killed_in_an_action_leaves_what_it_was_about_to_do(store: Store) -> None:
    code = (
        "import os, signal, sys; from celery_guard.store import open_store; from celery_guard.flow.admin.actor import *;"
        "from celery_guard.flow.admin.audit import Authority\n"
        "with Authority(open_store(sys.argv[1]), by_role, 100).act(Actor('ann'), Action.JOBS_CANCEL, Target(('7e',)), 'r'):\n"
        "    os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    url = store._database.url.render_as_string()  # type: ignore[attr-defined]
    done = subprocess.run([sys.executable, "-c", code, url], check=False)
    assert done.returncode == -9
    assert [(row.outcome, row.job, row.actor) for row in rows(store)] == [(Outcome.INTENDED, "7e", "ann")]


def test_what_may_not_be_done_is_not_done_and_is_written(store: Store) -> None:
    with (
        pytest.raises(NotAllowed, match=r"ann \(operator\) may not do dlq.purge.*role admin"),
        authority(store).act(ANN, Action.DLQ_PURGE, Target(("7e",)), "tidy"),
    ):
        pytest.fail("it was done")
    [row] = rows(store)
    assert (row.outcome, row.action, row.job, row.reason) == (Outcome.REFUSED, "dlq.purge", "7e", "tidy")


def test_a_look_is_written_only_when_it_is_refused(store: Store) -> None:
    watch = authority(store, lambda actor, action, target: actor.name == "ann")
    watch.look(ANN, Action.DLQ_LOOK, Target())
    assert rows(store) == []
    with pytest.raises(NotAllowed):
        watch.look(EVE, Action.DLQ_LOOK, Target())
    assert [row.actor for row in rows(store)] == ["eve"]


@pytest.mark.parametrize("answer", [False, None, "yes", 1], ids=repr)
def test_whatever_a_rule_answers_but_true_is_a_no(store: Store, answer: Any) -> None:
    with pytest.raises(NotAllowed):
        authority(store, lambda *_: answer).look(ROOT, Action.DLQ_LOOK, Target())


def test_a_rule_that_raises_is_a_no(store: Store) -> None:
    def broken(*_: Any) -> bool:
        raise LookupError("directory is away")

    with pytest.raises(LookupError), authority(store, broken).act(ROOT, Action.JOBS_CANCEL, Target(("7e",)), "r"):
        pytest.fail("it was done")
    assert said(store) == [("refused", "authorize raised LookupError")]


def test_an_actor_of_a_tenant_stays_within_it_whatever_the_rule_says(store: Store) -> None:
    generous = authority(store, lambda *_: True)
    assert generous.look(EVE, Action.DLQ_LOOK, Target()).tenant == "acme"
    for target in (Target(tenant="other"), Target(("7e",), tenant="other")):
        with pytest.raises(NotAllowed, match="sees no other"):
            generous.look(EVE, Action.DLQ_LOOK, target)
        with pytest.raises(NotAllowed, match="sees no other"), generous.act(EVE, Action.DLQ_REPLAY, target, "r"):
            pytest.fail("it was done")
    assert {(str(row.outcome), row.tenant) for row in rows(store)} == {("refused", "acme")}


@pytest.mark.parametrize("reason", ["", "  "])
def test_an_action_has_a_reason(store: Store, reason: str) -> None:
    with pytest.raises(ReasonMissing), authority(store).act(ANN, Action.JOBS_CANCEL, Target(("7e",)), reason):
        pytest.fail("it was done")
    assert said(store) == [("refused", "no reason was given")]


@pytest.mark.parametrize(
    ("count", "confirm", "done"), [(3, None, True), (4, None, False), (4, 3, False), (4, 4, True), (4, 9, True)]
)
def test_more_jobs_than_the_limit_are_touched_only_when_the_number_is_confirmed(
    store: Store, count: int, confirm: int | None, done: bool
) -> None:
    watched = authority(store, confirm_above=3)
    target = Target(which={"task": "shop.charge"}, count=count)
    if done:
        with watched.act(ANN, Action.DLQ_REPLAY, target, "r", confirm):
            pass
        return
    with (
        pytest.raises(ConfirmationNeeded, match="--confirm 4") as caught,
        watched.act(ANN, Action.DLQ_REPLAY, target, "r", confirm),
    ):
        pytest.fail("it was done")
    assert (caught.value.count, caught.value.limit) == (4, 3)
    assert said(store) == [("refused", "not confirmed")]


def test_nothing_is_done_that_the_audit_cannot_be_told_of() -> None:
    class Away:
        def audit(self, rows: Any) -> None:
            raise StoreUnavailableError("away")

    with pytest.raises(StoreUnavailableError), authority(Away()).act(ANN, Action.JOBS_CANCEL, Target(("7e",)), "r"):
        pytest.fail("it was done")


def test_an_outcome_that_the_audit_cannot_be_told_is_in_the_log(store: Store, caplog: pytest.LogCaptureFixture) -> None:
    class Going:
        def __init__(self) -> None:
            self.gone = False

        def audit(self, rows: Any) -> None:
            if self.gone:
                raise StoreUnavailableError("away")
            store.audit(rows)

    going = Going()
    with authority(going).act(ANN, Action.JOBS_CANCEL, Target(("7e",)), "r") as acting:
        going.gone = True
        acting.result = "1 cancelled"
    assert said(store) == [("intended", "")]
    assert "1 cancelled" in caplog.text


def test_the_audit_is_read_by_those_who_may_and_a_tenant_reads_its_own(store: Store) -> None:
    rule = authority(store)
    for actor in (ANN, EVE):
        with rule.act(actor, Action.JOBS_CANCEL, Target(("7e",)), "r"):
            pass
    audit = Audit(store, rule)
    assert {row.actor for row in audit.list(by=ANN)} == {"ann", "eve"}
    assert {row.actor for row in audit.list(by=EVE)} == {"eve"}
    assert audit.list(by=ANN, action=Action.DLQ_PURGE) == []
    assert len(audit.list(by=ANN, since=timedelta(hours=1), outcome=Outcome.DONE)) == 2
    with pytest.raises(NotAllowed):
        audit.list(by=EVE, tenant="other")
