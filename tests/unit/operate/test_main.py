"""The two ways in, how they end, status and check."""

from __future__ import annotations

import subprocess
import sys
from datetime import timedelta
from typing import Any

import click
import pytest
from celery import Celery
from click.testing import CliRunner

from celery_guard.errors import (
    ConfigurationError,
    GuardError,
    StoreError,
    StoreSchemaError,
    StoreUnavailableError,
)
from celery_guard.job.replay import Replay, ReplayState
from celery_guard.job.state import STANDING, State
from celery_guard.operate.cli.main import guard, main
from celery_guard.store.protocol import Heartbeat

from .shop import NOW, Canned, Run, answer_of


def words_of(group: click.Group) -> dict[str, Any]:
    """Every word below a group, with those below it."""
    ctx = click.Context(group)
    found = {}
    for name in group.list_commands(ctx):
        command = group.get_command(ctx, name)
        found[name] = words_of(command) if isinstance(command, click.Group) else None
    return found


def test_both_ways_in_have_the_same_words() -> None:
    assert words_of(guard) == words_of(main)
    assert {"store", "relay", "jobs", "dlq", "quarantine", "status", "check"} <= set(words_of(main))
    assert words_of(main)["jobs"] == dict.fromkeys(("list", "show", "watch", "cancel", "settle", "counts"))


@pytest.mark.parametrize("module", ["celery", "sqlalchemy", "alembic", "rich", "pydantic", "kombu"])
def test_celerys_own_commands_do_not_pay_for_the_guards(module: str) -> None:
    code = f"import sys, celery_guard.operate.cli.main; sys.exit({module!r} in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], timeout=60).returncode == 0


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (GuardError("it is so"), 1),
        (ConfigurationError("it is so"), 2),
        (StoreError("it is so"), 3),
        (StoreUnavailableError("it is so"), 3),
        (StoreSchemaError("it is so"), 3),
    ],
    ids=lambda value: type(value).__name__,
)
def test_an_error_ends_in_one_line_and_its_own_status(run: Run, error: GuardError, status: int) -> None:
    result = run("jobs", "counts", store=Canned(counts=error))
    assert (result.exit_code, result.stdout) == (status, "")
    assert result.stderr == f"error [{error.code}]: it is so\n"


def test_the_store_is_closed_at_the_end(run: Run) -> None:
    store = Canned(counts={})
    run("jobs", "counts", store=store)
    assert store.asked[-1][0] == "close"


def test_without_an_app_it_is_said_what_to_type() -> None:
    result = CliRunner().invoke(main, ["jobs", "list"], prog_name="celery-guard", env={"CELERY_APP": None, "APP": None})
    assert result.exit_code == 2
    assert "celery-guard -A your_module jobs list" in result.stderr


@pytest.mark.parametrize(
    ("name", "said"),
    [("no_such_module_here", "there is no module"), ("json:nothing", "nothing"), ("json:dumps", "no Celery app")],
)
def test_an_app_that_cannot_be_loaded_is_a_line_and_no_traceback(name: str, said: str) -> None:
    result = CliRunner().invoke(main, ["-A", name, "jobs", "list"])
    assert result.exit_code == 2
    assert result.stderr.startswith("error [GUARD-100]: ")
    assert said in result.stderr


def test_an_app_may_be_named_in_the_environment() -> None:
    result = CliRunner().invoke(main, ["jobs", "list"], env={"CELERY_APP": "no_such_module_here"})
    assert "no_such_module_here" in result.stderr


def beat(name: str = "relay:0", live: bool = True) -> Heartbeat:
    return Heartbeat(name, "host:7", NOW, NOW + timedelta(seconds=30), live)


@pytest.mark.parametrize(
    ("beats", "due", "more", "status"),
    [
        ([beat()], timedelta(seconds=-90), {}, 0),
        ([], timedelta(seconds=-90), {}, 1),
        ([], timedelta(0), {}, 1),
        ([beat(live=False)], timedelta(seconds=-90), {}, 1),
        ([beat("worker:a")], timedelta(seconds=-90), {}, 1),
        ([], timedelta(seconds=90), {}, 0),
        ([], None, {}, 0),
        ([], None, {State.RUNNING: 1}, 1),
        ([], None, {State.SENT: 1}, 1),
        ([beat()], None, {State.SENT: 1, State.RUNNING: 1}, 0),
        ([], None, {State.SUCCEEDED: 1, State.DEAD: 1}, 0),
    ],
    ids=["relayed", "nobody", "just due", "dead", "another", "later", "nothing", "running", "sent", "at work", "ended"],
)
def test_status_is_well_unless_jobs_are_under_way_and_nobody_relays(
    run: Run, beats: list[Heartbeat], due: timedelta | None, more: dict[State, int], status: int
) -> None:
    store = Canned(heartbeats=beats, counts={State.PENDING: 3, **more}, next_due=due)
    result = run("status", store=store)
    assert result.exit_code == status
    assert ("no relay is alive" in result.stderr) is bool(status)
    assert "secret" not in result.output
    as_json = answer_of(run("status", "--json", store=store))
    assert as_json["well"] is not bool(status)
    assert as_json["next_due_in"] == (None if due is None else due.total_seconds())
    assert as_json["counts"]["pending"] == 3
    assert as_json["counts"].keys() == STANDING


@pytest.mark.parametrize(
    ("beats", "own", "status"),
    [
        ([beat()], {State.PENDING: 3}, 0),
        ([], {State.PENDING: 3}, 1),
        ([], {State.RUNNING: 1}, 1),
        ([beat(live=False), beat("worker:a")], {State.SENT: 1}, 1),
        ([], {State.SUCCEEDED: 1, State.DEAD: 1}, 0),
        ([], {}, 0),
    ],
)
def test_status_tells_an_actor_of_one_tenant_whether_anybody_relays_and_of_nobody_else(
    run: Run, beats: list[Heartbeat], own: dict[State, int], status: int
) -> None:
    # what is due, and for whom, is not asked
    store = Canned(heartbeats=beats, counts=own)
    result = run("status", "--scope", "acme", store=store)
    assert result.exit_code == status
    alive = sum(one.live and one.name == "relay:0" for one in beats)
    assert f"relays  {f'{alive} alive' if alive else 'none is alive'}\n" in result.stdout
    assert not any(name in result.output for name in ("host:7", "relay:0", "worker:a", "due  "))
    as_json = answer_of(run("status", "--scope", "acme", "--json", store=store))
    assert (as_json["heartbeats"], as_json["next_due_in"], as_json["well"]) == (None, None, not status)
    assert [args for name, args, _ in store.asked if name == "counts"] == [("acme", STANDING)] * 2


def test_status_shows_for_how_long_the_oldest_waits(run: Run) -> None:
    store = Canned(heartbeats=[beat()], counts={}, next_due=timedelta(seconds=-192))
    assert "the oldest for 3m 12s" in run("status", store=store).stdout


def test_status_names_replays_that_are_not_over(run: Run) -> None:
    stopped = Replay("5c1d", ReplayState.STOPPED, "ann", "operator", "here", "r", "all", NOW)
    store = Canned(heartbeats=[beat()], counts={}, next_due=None, replays=[stopped])
    assert "replays  5c1d is stopped" in run("status", store=store).stdout
    assert answer_of(run("status", "--json", store=store))["replays"][0]["state"] == "stopped"


# -- check ----------------------------------------------------------------------------------------------------------


def checked(run: Run, *words: str) -> Any:
    store = Canned()
    store.limits = {"G2": "it cannot"}
    store.server = dict
    return run("check", *words, store=store)


def test_check_is_content_with_remarks(run: Run) -> None:
    result = checked(run)
    assert result.exit_code == 0
    assert result.stdout.startswith("CHECK-503 info: ")
    assert result.stderr == "1 info\n"


def test_check_refuses_a_pool_that_celery_does_not_know(run: Run) -> None:
    result = checked(run, "--pool", "bogus")
    assert (result.exit_code, "GUARD-100" in result.output, "'bogus'" in result.output) == (2, True, True)


def test_check_ends_with_1_at_the_severity_that_was_asked_for(run: Run, app: Celery) -> None:
    assert checked(run, "--fail-on", "info").exit_code == 1
    app.conf.task_always_eager = True
    assert checked(run).exit_code == 1
    assert checked(run, "--fail-on", "error").exit_code == 0
    app.conf.accept_content = ["pickle"]
    result = checked(run, "--fail-on", "error")
    assert result.exit_code == 1
    assert result.stderr == "1 error, 1 warning, 1 info\n"


def test_check_says_what_why_and_what_to_do(run: Run, app: Celery) -> None:
    app.conf.accept_content = ["pickle"]
    first, second, *_ = checked(run).stdout.splitlines()
    assert first == "CHECK-401 error: pickle in accept_content"
    assert second.startswith("    why: Whoever can write to the broker")
    assert "    fix: " in checked(run).stdout
    assert answer_of(checked(run, "--json"))[0] == {
        "code": "CHECK-401",
        "severity": "error",
        "found": "pickle in accept_content",
        "why": "Whoever can write to the broker or the result backend can run code in your workers.",
        "fix": 'Use "json" (or "msgpack") and drop pickle from the setting.',
        "tasks": [],
    }


def test_check_is_about_the_pool_that_is_named(run: Run) -> None:
    assert "CHECK-203" in checked(run, "--pool", "gevent").stdout
    assert "CHECK-203" not in checked(run).stdout
