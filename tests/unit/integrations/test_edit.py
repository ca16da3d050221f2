"""A person corrects the arguments of a dead letter, from Python and from the command line; the store's part is in the conformance suite."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from celery import Celery, chain
from click.testing import CliRunner, Result

from celery_guard import Actor, Contract, EditRefused, GuardedTask, MoveRefused, NotAllowed, NotFound, Payload, Role
from celery_guard.flow.admin.edit import Call
from celery_guard.job.audit import Outcome
from celery_guard.job.row import StoredPayload
from celery_guard.job.state import State
from celery_guard.operate.cli.main import guard as guard_command
from celery_guard.testing.conformance.builders import dead, failure
from celery_guard.testing.conformance.moves import claim, found, take

from .test_damaged import deliver

ANN = Actor("ann", Role.ADMIN, origin="here")
CARD = "4111-1111-1111"


class Address(Payload, version=1):
    street: str
    number: int


@pytest.fixture
def app(make_app: Callable[..., Celery]) -> Celery:
    return make_app({"key_secret": "a long random text"})


@pytest.fixture
def runs() -> list[Any]:
    return []


@pytest.fixture
def charge(app: Celery, runs: list[Any]) -> Any:
    contract = Contract(key="order", tenant="tenant", sensitive=("card.number", "pin"))

    @app.task(base=GuardedTask, name="charge", shared=False, contract=contract)
    def charge(order: int, amount: int, tenant: str = "acme", card: Any = None, pin: str | None = None) -> None:
        runs.append((order, amount, card))

    return charge


@pytest.fixture
def ship(app: Celery, runs: list[Any]) -> Any:
    @app.task(base=GuardedTask, name="ship", shared=False)
    def ship(to: Address) -> None:
        runs.append(to)

    return ship


def letter(app: Celery, signature: Any) -> str:
    """A dead letter of this call."""
    id: str = signature.apply_async().id
    die(app, id)
    return id


def die(app: Celery, id: str) -> None:
    assert app.guard.store.settle(dead(claim(app.guard.store, id), failure=failure()))


def body_of(app: Celery, id: str, generation: int | None = None) -> Any:
    return json.loads(message_of(app, id, generation).body)


def message_of(app: Celery, id: str, generation: int | None = None) -> StoredPayload:
    payload = app.guard.store.payload(id, generation)
    assert isinstance(payload, StoredPayload)
    return payload


def wrong(charge: Any) -> Any:
    return charge.s(7, amount=1000, card={"number": CARD, "name": "Ann"}, pin="9876")


def test_an_edit_shows_masks_keeps_secrets_and_the_first_message_and_is_audited(app: Celery, charge: Any) -> None:
    id, edits = letter(app, wrong(charge)), app.guard.dlq.edits
    before = message_of(app, id)
    call = edits.read(id, by=ANN, reason="ticket 7")
    assert call == Call([7], {"amount": 1000, "card": {"number": "***", "name": "Ann"}, "pin": "***"}, 0)
    edited = edits.replay(id, Call(call.args, {**call.kwargs, "amount": 10}), by=ANN, reason="ten, not a thousand")
    assert (edited.generation, [str(change) for change in edited.changes]) == (1, ["kwargs['amount']: 1000 -> 10"])
    row = found(app.guard.store, id)
    assert (row.state, row.generation, row.replays) == (State.PENDING, 1, 1)
    args, kwargs, embed = body_of(app, id)
    assert (args, kwargs) == ([7], {"amount": 10, "card": {"number": CARD, "name": "Ann"}, "pin": "9876"})
    assert (message_of(app, id, 0), embed) == (before, body_of(app, id, 0)[2])
    assert app.guard.dlq.reveal(id, by=ANN, reason="r", generation=0) == before
    rows = app.guard.audit.list(by=ANN, job=id)[:1:-1]
    assert [(each.action, each.outcome, each.actor, each.reason) for each in rows[2:]] == [
        ("dlq.edit", Outcome.INTENDED, "ann", "ten, not a thousand"),
        ("dlq.edit", Outcome.INTENDED, "ann", "ten, not a thousand"),
        ("dlq.edit", Outcome.DONE, "ann", "ten, not a thousand"),
    ]
    assert [each.detail for each in rows[2:]] == [
        "", "kwargs['amount']: 1000 -> 10", "sent again with message 1 in place of 0",
    ]  # fmt: skip
    assert CARD not in str(rows)
    told = str(app.guard.jobs.timeline(id, by=ANN))
    assert "ten, not a thousand" in told
    assert "1000 -> 10" not in told


def test_the_body_runs_with_what_was_corrected_also_where_a_late_copy_of_the_first_message_comes(
    app: Celery, charge: Any, runs: list[Any]
) -> None:
    id = letter(app, wrong(charge))
    first = message_of(app, id)
    app.guard.dlq.edits.replay(
        id, Call([7, 10], {"card": {"number": "***", "name": "Ann"}, "pin": "***"}), by=ANN, reason="r"
    )
    assert [row.id for row in take(app.guard.store)] == [id]
    deliver(app, charge, id, first)
    assert runs == [(7, 10, {"number": CARD, "name": "Ann"})]


def test_a_message_of_before_the_guard_that_comes_late_does_not_run_either(
    app: Celery, ship: Any, runs: list[Any]
) -> None:
    id = letter(app, ship.s(to={"street": "Hill", "number": 1}))
    app.guard.dlq.edits.replay(id, Call(None, {"to": {"street": "Hill", "number": 2}}), by=ANN, reason="r")
    first = message_of(app, id, 0)
    headers = {name: value for name, value in json.loads(first.headers).items() if name != "guard"}
    assert [row.id for row in take(app.guard.store)] == [id]
    deliver(app, ship, id, StoredPayload(first.body, json.dumps(headers), first.delivery))
    assert runs == [Address(street="Hill", number=2)]


def test_what_hangs_on_the_job_goes_on(app: Celery, charge: Any, ship: Any) -> None:
    result = chain(charge.si(7, amount=1000), ship.si(to={"street": "Hill", "number": 1})).apply_async()
    id = result.parent.id
    die(app, id)
    app.guard.dlq.edits.replay(id, Call(None, {"amount": 10}), by=ANN, reason="r")
    assert body_of(app, id)[2] == body_of(app, id, 0)[2]
    assert [step["task"] for step in body_of(app, id)[2]["chain"]] == ["ship"]


REFUSED: dict[str, tuple[Call, str]] = {
    "a sensitive field": (Call(None, {"amount": 1, "card": {"number": "5", "name": "Ann"}, "pin": "***"}), "is sensitive"),
    "one that is taken away": (Call(None, {"amount": 1, "card": {"number": "***", "name": "Ann"}}), "is sensitive"),
    "what is around it": (Call(None, {"amount": 1, "card": None, "pin": "***"}), "has sensitive fields"),
    "the key": (Call([8], None), "another key"),
    "the tenant": (
        Call(None, {"amount": 1, "tenant": "evil", "card": {"number": "***", "name": "Ann"}, "pin": "***"}), "another (key|tenant)",
    ),
    "a name that the task does not have": (
        Call(None, {"amuont": 1, "card": {"number": "***", "name": "Ann"}, "pin": "***"}), "would not take these arguments",
    ),
    "nothing": (Call([7], None), "nothing was changed"),
}  # fmt: skip


@pytest.mark.parametrize("what", REFUSED)
def test_an_edit_is_refused_and_changes_nothing_where_it_touches(app: Celery, charge: Any, what: str) -> None:
    id = letter(app, wrong(charge))
    call, why = REFUSED[what]
    before = message_of(app, id), found(app.guard.store, id)
    for act in (app.guard.dlq.edits.preview, lambda *a, by: app.guard.dlq.edits.replay(*a, by=by, reason="r")):
        with pytest.raises(EditRefused, match=why) as raised:
            act(id, call, by=ANN)
        assert CARD not in str(raised.value)
    assert (message_of(app, id), found(app.guard.store, id)) == before
    assert app.guard.audit.list(by=ANN, job=id)[0].outcome is Outcome.FAILED


def test_what_the_payload_model_does_not_take_is_refused_and_the_value_not_said(app: Celery, ship: Any) -> None:
    id = letter(app, ship.s(to={"street": "Hill", "number": 1}))
    with pytest.raises(EditRefused, match=r"to is no Address of version 1: number") as raised:
        app.guard.dlq.edits.replay(id, Call(None, {"to": {"street": "Hill", "number": CARD}}), by=ANN, reason="r")
    assert CARD not in str(raised.value)
    assert app.guard.store.payload(id, 1) is None


def test_the_first_who_edits_wins_and_what_is_not_dead_is_not_edited(app: Celery, charge: Any) -> None:
    id, edits = letter(app, charge.s(7, amount=1000)), app.guard.dlq.edits
    assert edits.replay(id, Call(None, {"amount": 10}), by=ANN, reason="r").generation == 1
    with pytest.raises(MoveRefused, match="is pending; only a dead letter is edited"):
        edits.replay(id, Call(None, {"amount": 20}), by=ANN, reason="r")
    die(app, id)
    with pytest.raises(MoveRefused, match="generation 1 by now, and generation 0 was edited"):
        edits.replay(id, Call(None, {"amount": 20}, generation=0), by=ANN, reason="r")
    assert edits.replay(id, Call(None, {"amount": 20}, generation=1), by=ANN, reason="r").generation == 2


def test_who_may_not_edit_or_may_not_see_it_is_refused_and_written_down(app: Celery, charge: Any) -> None:
    id, call = letter(app, charge.s(7, amount=1000)), Call(None, {"amount": 10})
    with pytest.raises(NotAllowed, match="role admin"):
        app.guard.dlq.edits.replay(id, call, by=Actor("bob", Role.OPERATOR), reason="r")
    with pytest.raises(NotFound):
        app.guard.dlq.edits.replay(id, call, by=Actor("eve", Role.ADMIN, tenant="other"), reason="r")
    assert [row.outcome for row in app.guard.audit.list(by=ANN)] == [Outcome.REFUSED] * 2
    assert found(app.guard.store, id).state is State.DEAD


def test_what_the_contract_does_not_allow_to_be_repeated_is_not_edited(app: Celery) -> None:
    @app.task(base=GuardedTask, name="wire", shared=False, contract=Contract(replayable=False))
    def wire(amount: int) -> None: ...

    id = letter(app, wire.s(amount=1))
    with pytest.raises(MoveRefused, match="not to be repeated"):
        app.guard.dlq.edits.replay(id, Call(None, {"amount": 2}), by=ANN, reason="r")


# -- the command line ---------------------------------------------------------------------------------------------------


def run(app: Celery, *words: str, input: str | None = None) -> Result:
    context = SimpleNamespace(app=app, no_color=False)
    return CliRunner().invoke(guard_command, list(words), obj=context, catch_exceptions=False, input=input)


EDIT = ("--reason", "ticket 7", "--role", "admin", "--actor", "ann")


def test_arguments_from_a_script_take_the_place_of_those_there_are(app: Celery, charge: Any) -> None:
    id = letter(app, charge.s(7, amount=1000))
    typed = '{"kwargs": {"amount": 10}}'
    seen = run(app, "dlq", "replay", id, "--arguments", "-", "--preview", *EDIT, input=typed)
    assert (seen.exit_code, seen.stdout) == (0, "  kwargs['amount']: 1000 -> 10\n")
    assert found(app.guard.store, id).state is State.DEAD
    done = run(app, "dlq", "replay", id, "--arguments", "-", "--json", *EDIT, input=typed)
    assert json.loads(done.stdout)["edited"]["changes"] == [{"path": "kwargs['amount']", "was": "1000", "now": "10"}]
    assert body_of(app, id)[:2] == [[7], {"amount": 10}]
    shown = run(app, "dlq", "show", id, "--reveal", "--generation", "0", *EDIT)
    assert '"amount": 1000' in shown.stdout


@pytest.mark.parametrize("typed", ["", "{", "[]", "{}", '{"args": {}}', '{"kwargs": {}, "more": 1}'])
def test_what_are_no_arguments_is_refused(app: Celery, charge: Any, typed: str) -> None:
    id = letter(app, charge.s(7, amount=1000))
    result = run(app, "dlq", "replay", id, "--arguments", "-", *EDIT, input=typed)
    assert (result.exit_code, "GUARD-606" in result.stderr) == (1, True)
    assert found(app.guard.store, id).state is State.DEAD


def test_an_editor_is_opened_on_the_masked_arguments(
    app: Celery, charge: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    id, seen = letter(app, wrong(charge)), tmp_path / "seen.json"
    editor = tmp_path / "editor"
    editor.write_text(f'#!/bin/sh\ncp "$1" {seen}\nsed s/1000/10/ {seen} > "$1"\ntouch -d "+1 minute" "$1"\n')
    editor.chmod(0o700)
    monkeypatch.setenv("VISUAL", str(editor))
    result = run(app, "dlq", "replay", id, "--edit", *EDIT)
    assert result.exit_code == 0, result.stderr
    assert (CARD in seen.read_text(), '"number": "***"' in seen.read_text()) == (False, True)
    assert body_of(app, id)[1]["amount"] == 10
    assert [row.action for row in app.guard.audit.list(by=ANN)][::-1][:2] == ["jobs.reveal", "jobs.reveal"]


def test_an_editor_that_saves_nothing_changes_nothing(
    app: Celery, charge: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    id = letter(app, charge.s(7, amount=1000))
    monkeypatch.setenv("VISUAL", "true")
    result = run(app, "dlq", "replay", id, "--edit", *EDIT)
    assert (result.exit_code, "nothing was saved" in result.stderr) == (1, True)
    assert found(app.guard.store, id).state is State.DEAD


@pytest.mark.parametrize("words", [("--all",), ("a", "b"), ("a", "--rate", "5")])
def test_one_letter_is_edited_at_a_time(app: Celery, words: tuple[str, ...]) -> None:
    assert run(app, "dlq", "replay", *words, "--edit", *EDIT).exit_code == 2
