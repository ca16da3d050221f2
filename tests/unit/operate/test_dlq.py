"""``guard dlq`` on a store with letters in it: by cause, noted, closed, purged, exported, sent again."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from celery_guard.job.replay import ReplayState
from celery_guard.job.state import State
from celery_guard.store import open_store
from celery_guard.store.protocol import Store
from celery_guard.testing.conformance.builders import failure, new_job, payload, succeeded
from celery_guard.testing.conformance.moves import claim, die, found, start

from .shop import Run, answer_of

SECRET = "4111-1111"


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    store = open_store(f"sqlite:///{tmp_path / 'guard.db'}")
    store.upgrade()
    yield store
    store.close()


def letters(store: Store, number: int, cause: str = "down", **given: Any) -> list[str]:
    job = {"payload": payload(SECRET.encode()), **given}
    return [die(store, new_job(**job), failure=failure(f"card {SECRET}", cause=cause)).id for _ in range(number)]


def test_groups_say_what_failed_alike_and_the_note(run: Run, store: Store) -> None:
    letters(store, 3, tenant="acme")
    letters(store, 1, cause="bad")
    assert run("dlq", "note", "down", "ticket 7", "--actor", "ann", store=store).exit_code == 0
    head, first, second = run("dlq", "groups", store=store).stdout.splitlines()
    assert head.split() == ["TASK", "CAUSE", "TYPE", "COUNT", "FIRST", "LAST", "TENANTS", "NOTE"]
    assert {"down", "3", "shop.CardDeclined"} <= set(first.split())
    assert first.endswith("ticket 7 (ann)")
    assert "bad" in second.split()
    assert "dlq replay --cause CAUSE --preview" in run("dlq", "groups", store=store).stderr
    found = answer_of(run("dlq", "groups", "--json", store=store))
    assert [(group["cause"], group["count"], group["tenants"]) for group in found] == [("down", 3, 1), ("bad", 1, 0)]


def test_a_note_to_a_cause_that_nothing_has_failed_of_is_refused(run: Run, store: Store) -> None:
    letters(store, 1)
    result = run("dlq", "note", "dwon", "ticket 7", store=store)
    assert (result.exit_code, "guard dlq groups" in result.stderr) == (1, True)
    assert run("dlq", "note", "dwon", store=store).exit_code == 0


def test_letters_are_as_old_as_their_death(run: Run, store: Store) -> None:
    [id] = letters(store, 1)
    assert json.loads(run("dlq", "export", "--younger", "1h", store=store).stdout)["id"] == id
    assert run("dlq", "export", "--older", "1h", store=store).stdout == ""


def test_a_reason_that_is_missing_is_asked_for_on_a_terminal(
    run: Run, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    [id] = letters(store, 1)
    assert "Missing option '--reason'" in run("dlq", "resolve", id, store=store).stderr
    monkeypatch.setattr(
        "celery_guard.operate.cli.filters.sys", SimpleNamespace(stdin=SimpleNamespace(isatty=lambda: True))
    )
    monkeypatch.setattr("celery_guard.operate.cli.filters.click.prompt", lambda *text, err: "paid by hand")
    assert run("dlq", "resolve", id, store=store).exit_code == 0
    assert store.audited(job=id)[0].reason == "accepted loss: paid by hand"


def test_letters_are_closed_with_a_reason_and_it_says_which_were_not(run: Run, store: Store) -> None:
    [id], alive = letters(store, 1), start(store).id
    result = run("dlq", "resolve", id, alive, "--reason", "paid by hand", "--repaired", "--actor", "ann", store=store)
    assert result.exit_code == 1
    assert result.stdout == f"{alive}  skipped: it is running, not dead\n"
    assert "1 done, 1 skipped (it is running, not dead), by ann" in result.stderr
    assert found(store, id).state is State.RESOLVED
    rows = store.audited(job=id)
    assert [(row.actor, row.reason) for row in rows] == [("ann", "repaired by hand: paid by hand")]


@pytest.mark.parametrize("word", ["resolve", "purge"])
def test_without_a_reason_or_a_choice_nothing_is_done(run: Run, store: Store, word: str) -> None:
    [id] = letters(store, 1)
    for words in (
        (id,),
        ("--reason", "r"),
        (id, "--all", "--reason", "r"),
        ("--all", "--reason", " ", "--role", "admin"),
    ):
        assert run("dlq", word, *words, store=store).exit_code != 0
    assert found(store, id).state is State.DEAD


def test_a_purge_takes_an_admin_and_leaves_what_was_never_replayed_unless_told(run: Run, store: Store) -> None:
    fresh, closed = letters(store, 1)[0], letters(store, 1)[0]
    run("dlq", "resolve", closed, "--reason", "lost", store=store)
    refused = run("dlq", "purge", "--all", "--reason", "tidy", store=store)
    assert (refused.exit_code, "GUARD-601" in refused.stderr) == (1, True)
    result = run("dlq", "purge", "--all", "--reason", "tidy", "--role", "admin", store=store)
    assert "1 done, 1 skipped (it was neither replayed nor resolved)" in result.stderr
    assert "deleted with --unreplayed" in result.stderr
    assert store.job(closed) is None
    assert found(store, fresh).state is State.DEAD
    result = run("dlq", "purge", fresh, "--unreplayed", "--reason", "tidy", "--role", "admin", store=store)
    assert (result.exit_code, store.job(fresh)) == (0, None)


def test_more_than_the_limit_needs_the_number(run: Run, store: Store) -> None:
    letters(store, 101)
    result = run("dlq", "resolve", "--cause", "down", "--reason", "lost", store=store)
    assert "[GUARD-602]" in result.stderr
    assert "--confirm 101" in result.stderr
    assert store.counts() == {State.DEAD: 101}
    assert run("dlq", "resolve", "--cause", "down", "--reason", "lost", "--confirm", "101", store=store).exit_code == 0
    assert store.counts() == {State.RESOLVED: 101}


def test_an_export_is_a_line_a_letter_and_has_no_argument_in_it(run: Run, store: Store) -> None:
    ids = letters(store, 3)
    result = run("dlq", "export", "--all", store=store)
    assert {json.loads(line)["id"] for line in result.stdout.splitlines()} == {*ids}
    assert SECRET not in result.stdout
    assert [str(row.outcome) for row in store.audited(action="dlq.export")] == ["done", "intended"]


def test_what_belongs_to_another_tenant_is_neither_seen_nor_touched(run: Run, store: Store) -> None:
    [own], [other] = letters(store, 1, tenant="acme"), letters(store, 1, tenant="other")
    scope = ("--scope", "acme")
    assert [job["id"] for job in answer_of(run("dlq", "list", *scope, "--json", store=store))] == [own]
    assert [group["count"] for group in answer_of(run("dlq", "groups", *scope, "--json", store=store))] == [1]
    assert run("dlq", "list", "--tenant", "other", *scope, store=store).exit_code == 1
    missing = run("dlq", "show", other, *scope, store=store)
    assert (missing.exit_code, "There is no job" in missing.stderr) == (1, True)
    assert run("dlq", "resolve", other, *scope, "--reason", "r", store=store).exit_code == 1
    assert run("dlq", "resolve", "--all", *scope, "--reason", "r", store=store).exit_code == 0
    assert (found(store, own).state, found(store, other).state) == (State.RESOLVED, State.DEAD)


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (("--reason", "curious"), "GUARD-601"),
        (("--role", "viewer", "--reason", "curious"), "GUARD-601"),
        (("--role", "admin"), "GUARD-604"),
        (("--role", "admin", "--reason", "curious", "--scope", "other"), "GUARD-603"),
    ],
)
def test_pay_5_arguments_are_not_shown_to_who_may_not_see_them_or_says_no_reason(
    run: Run, store: Store, words: tuple[str, ...], code: str
) -> None:
    [id] = letters(store, 1, tenant="acme")
    result = run("dlq", "show", id, "--reveal", *words, store=store)
    assert (result.exit_code != 0, SECRET in result.output) == (True, False)
    assert code in result.stderr
    assert [str(row.outcome) for row in store.audited()] == ["refused"]


def test_who_has_seen_arguments_is_in_the_audit(run: Run, store: Store) -> None:
    [id] = letters(store, 1)
    run("dlq", "show", id, store=store)
    assert store.audited() == []
    shown = run("dlq", "show", id, "--reveal", "--role", "admin", "--reason", "ticket 7", store=store)
    assert SECRET in shown.stdout
    rows = store.audited(action="jobs.reveal", job=id)
    assert [(str(row.outcome), row.reason) for row in rows] == [("done", "ticket 7"), ("intended", "ticket 7")]


def test_dlq_1_a_replay_says_what_it_would_skip_and_why(run: Run, store: Store) -> None:
    [id], alive = letters(store, 1), start(store).id
    result = run("dlq", "replay", id, alive, "--reason", "gateway is back", "--actor", "ann", store=store)
    assert result.exit_code == 1
    assert "2 dead letters, 1 would be sent again" in result.stderr
    assert "1 would be skipped: it is running, not dead" in result.stderr
    assert result.stdout.endswith("of 1 jobs has begun, by ann: gateway is back\n")
    assert "No relay is alive" in result.stderr
    assert (found(store, id).state, found(store, id).replays) == (State.PENDING, 1)


def test_a_replay_needs_a_reason(run: Run, store: Store) -> None:
    [id] = letters(store, 1)
    result = run("dlq", "replay", id, store=store)
    assert (result.exit_code, "--reason" in result.stderr) == (2, True)
    assert found(store, id).state is State.DEAD


def test_a_preview_changes_nothing(run: Run, store: Store) -> None:
    letters(store, 2, tenant="acme")
    result = run("dlq", "replay", "--all", "--preview", store=store)
    assert (result.exit_code, result.stderr) == (0, "")
    assert "tenants: acme 2" in result.stdout
    assert store.replays() == []
    assert answer_of(run("dlq", "replay", "--all", "--preview", "--json", store=store))["preview"]["count"] == 2


def test_a_replay_is_looked_at_paused_resumed_and_aborted(run: Run, store: Store) -> None:
    letters(store, 3)
    begun = answer_of(
        run("dlq", "replay", "--all", "--reason", "r", "--rate", "5", "--cap", "2", "--json", store=store)
    )["replay"]
    assert (begun["state"], begun["total"], begun["every"], begun["cap"]) == ("running", 3, 0.2, 2)
    id = begun["id"]
    [_, line] = run("dlq", "replays", store=store).stdout.splitlines()
    assert {id, "running", "3"} <= set(line.split())
    assert "is paused" in run("dlq", "pause", id, "--reason", "lunch", store=store).stdout
    again = run("dlq", "pause", id, "--reason", "lunch", store=store)
    assert (again.exit_code, "GUARD-605" in again.stderr) == (1, True)
    assert "is running" in run("dlq", "resume", id, "--reason", "back", store=store).stdout
    assert "is aborted" in run("dlq", "abort", id, "--reason", "wrong", store=store).stdout
    one = answer_of(run("dlq", "replays", id, "--json", store=store))
    assert (one["state"], one["counts"], one["skipped"]) == ("aborted", {"released": 1, "waiting": 2}, [])
    assert "GUARD-603" in run("dlq", "replays", "none", store=store).stderr


def test_a_replay_that_is_watched_shows_its_end(run: Run, store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    [id] = letters(store, 1)

    def look(seconds: float) -> None:
        """What relays and workers do meanwhile."""
        from celery_guard.flow.admin.replay import Driver

        if found(store, id).state is State.PENDING:
            assert store.settle(succeeded(claim(store, id)))
        Driver(store).once()

    monkeypatch.setattr("celery_guard.operate.cli.replay.time.sleep", look)
    result = run("dlq", "replay", id, "--reason", "r", "--watch", store=store)
    assert result.exit_code == 0
    assert "is done: 1 succeeded" in result.stdout


def test_a_replay_that_has_stopped_itself_says_what_to_type_next(run: Run, store: Store) -> None:
    letters(store, 2)
    id = answer_of(run("dlq", "replay", "--all", "--reason", "r", "--json", store=store))["replay"]["id"]
    going_on = run("dlq", "replays", id, store=store)
    store.replay_move(id, [ReplayState.RUNNING], ReplayState.STOPPED, "1 died again")
    stopped = run("dlq", "replays", id, store=store)
    for words in ("dlq groups", f"dlq resume {id}", f"dlq abort {id}"):
        assert (words in going_on.stderr, words in stopped.stderr) == (False, True)


def test_a_failure_class_that_there_is_not_is_refused_with_those_that_there_are(run: Run, store: Store) -> None:
    result = run("dlq", "replay", "--failure-class", "transiant", "--preview", store=store)
    assert (result.exit_code, "'transient'" in result.stderr) == (2, True)
