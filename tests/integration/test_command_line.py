"""The command line through its real entry points: as processes, on a real store, read as an operator reads it."""

from __future__ import annotations

import json
import os
import pty
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from celery_guard.job.state import State
from celery_guard.store import open_store
from celery_guard.store.protocol import Store
from celery_guard.testing.conformance.builders import LONG, failure, new_job, payload
from celery_guard.testing.conformance.moves import accept, die, eventually, found, start, succeed
from celery_guard.testing.databases import database
from celery_guard.testing.services import POSTGRESQL, REDIS

from .shell import Shell

pytestmark = pytest.mark.integration

SECRET = "4111-1111"


@pytest.fixture(params=[("celery-guard", "sqlite"), ("celery", "postgresql"), ("celery", "redis")], ids=" on ".join)
def shell(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Shell]:
    """Both ways in and each kind of store, without a table in it."""
    way, kind = request.param
    if kind == "sqlite":
        yield from _opened(Shell(tmp_path, way, _file(tmp_path)))
        return
    with database(POSTGRESQL.need() if kind == "postgresql" else f"{REDIS.need()}3") as url:
        yield from _opened(Shell(tmp_path, way, url))


@pytest.fixture(params=["celery-guard", "celery"])
def either_shell(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Shell]:
    """Both ways in, for what the database has no say in."""
    yield from _opened(Shell(tmp_path, request.param, _file(tmp_path)))


@pytest.fixture
def small_shell(tmp_path: Path) -> Iterator[Shell]:
    """One way in, for what neither has a say in."""
    yield from _opened(Shell(tmp_path, "celery-guard", _file(tmp_path)))


def _file(folder: Path) -> str:
    return f"sqlite:///{folder / 'guard.db'}"


def _opened(shell: Shell) -> Iterator[Shell]:
    yield shell
    shell.close()


@pytest.fixture
def store(shell: Shell) -> Iterator[Store]:
    """The shell's store, with its tables."""
    yield from _with_tables(shell.url)


@pytest.fixture
def small_store(small_shell: Shell) -> Iterator[Store]:
    """The small shell's store, with its tables."""
    yield from _with_tables(small_shell.url)


def _with_tables(url: str) -> Iterator[Store]:
    store = open_store(url)
    store.upgrade()
    yield store
    store.close()


# -- the store ------------------------------------------------------------------------------------------------------


def test_tables_are_asked_for_made_and_found(shell: Shell) -> None:
    for words in (("store", "check"), ("jobs", "list")):
        missing = shell.type(*words)
        assert (missing.returncode, missing.stdout) == (3, "")
        assert missing.stderr.startswith("error [GUARD-302]: ")
        assert f"Run `{shell.way} -A shop {'guard ' if shell.way == 'celery' else ''}store upgrade`." in missing.stderr
    for _ in range(2):
        assert shell.type("store", "upgrade").returncode == 0
    assert shell.type("store", "check").returncode == 0


def test_the_upgrade_is_printed_and_not_made(shell: Shell) -> None:
    printed = shell.type("store", "sql")
    assert printed.returncode == 0
    assert ("HSETNX" if shell.url.startswith("redis") else "CREATE TABLE guard_job") in printed.stdout
    # a relay that runs waits for its store, so one that is started without tables has to say so
    assert shell.type("relay").returncode == 3


def test_a_store_that_cannot_be_reached_ends_with_3_and_no_password(small_shell: Shell) -> None:
    small_shell.url = "postgresql+psycopg://shop:hush@127.0.0.1:1/shop"
    done = small_shell.type("status")
    assert (done.returncode, done.stdout) == (3, "")
    assert done.stderr.startswith("error [GUARD-301]: ")
    assert "hush" not in done.stderr


# -- jobs, dead letters, quarantine -----------------------------------------------------------------------------------


def test_jobs_are_listed_counted_and_shown(shell: Shell, store: Store) -> None:
    waiting = new_job(task="shop.charge", tenant="acme", payload=payload(SECRET.encode()))
    accept(store, waiting)
    running, done, dead = start(store), succeed(store), die(store)

    listed = shell.type("jobs", "list")
    assert listed.returncode == 0
    assert "\x1b" not in listed.stdout
    assert {line.split()[0] for line in listed.stdout.splitlines()[1:]} == {waiting.id, running.id, done.id, dead.id}
    assert [job["id"] for job in shell.answer("jobs", "list", "--tenant", "acme")] == [waiting.id]
    assert [job["id"] for job in shell.answer("jobs", "list", "--state", "dead", "--state", "running")] == [
        dead.id,
        running.id,
    ]
    assert shell.answer("jobs", "counts") == {
        **dict.fromkeys((state.value for state in State), 0), "pending": 1, "running": 1, "succeeded": 1, "dead": 1,
    }  # fmt: skip

    shown = shell.answer("jobs", "show", dead.id)
    assert (shown["state"], shown["reason"], shown["attempts"]) == ("dead", "failed", 1)
    assert shown["failures"][0]["message"] == "card declined"
    shown = shell.type("jobs", "show", waiting.id).stdout
    assert waiting.id in shown
    assert SECRET not in shown


def test_pages_follow_each_other(small_shell: Shell, small_store: Store) -> None:
    jobs = [new_job() for _ in range(3)]
    for job in jobs:
        accept(small_store, job)
    page = small_shell.type("jobs", "list", "--limit", "2")
    after = re.search(r"--after (\S+)", page.stderr)
    assert after is not None
    rest = small_shell.answer("jobs", "list", "--limit", "2", "--after", after[1])
    assert [job["id"] for job in rest] == [jobs[0].id]


def test_cancel_1_a_cancel_is_kept_in_the_store_and_too_late_is_said(shell: Shell, store: Store) -> None:
    waiting = new_job()
    accept(store, waiting)
    running, done = start(store), succeed(store)
    answered = shell.type("jobs", "cancel", waiting.id, running.id, "--reason", "wrong file")
    assert answered.returncode == 0, answered.stderr
    assert found(store, waiting.id).state is State.CANCELLED
    assert found(store, running.id).shown_state == "cancelling"
    late = shell.type("jobs", "cancel", done.id, "no-such-job", "--reason", "wrong file")
    assert late.returncode == 1
    assert [line.split("  ", 1)[1] for line in late.stdout.splitlines()] == [
        "too late: it is succeeded",
        "there is no such job",
    ]
    assert found(store, done.id).state is State.SUCCEEDED


def test_a_dead_letter_is_found_understood_and_sent_again(shell: Shell, store: Store) -> None:
    granted = die(
        store, new_job(task="shop.charge", payload=payload(SECRET.encode())), failure=failure("card declined")
    )
    alive = start(store)

    [_, listed] = shell.type("dlq", "list", "--task", "shop.charge").stdout.splitlines()
    assert {granted.id, "payments", "failed", "permanent"} <= set(listed.split())
    shown = shell.type("dlq", "show", granted.id)
    assert "card declined" in shown.stdout
    assert SECRET not in shown.stdout
    reveal = ("dlq", "show", granted.id, "--reveal", "--reason", "what was it?")
    assert SECRET not in shell.type(*reveal).stdout, "an admin's to see"
    assert SECRET in shell.type(*reveal, "--role", "admin").stdout
    again = shell.type("dlq", "replay", granted.id, alive.id, "--reason", "gateway is back")
    assert again.returncode == 1, "one of the two is no dead letter"
    assert "2 dead letters, 1 would be sent again" in again.stderr
    assert "1 would be skipped: it is running, not dead" in again.stderr
    assert re.match(r"replay \w+ of 1 jobs has begun", again.stdout)
    assert (found(store, granted.id).state, found(store, granted.id).replays) == (State.PENDING, 1)
    assert shell.answer("dlq", "list") == []


def test_pay_5_what_nobody_could_open_is_listed_without_what_is_in_it(small_shell: Shell, small_store: Store) -> None:
    number = small_store.quarantine(
        queue="celery", body=SECRET.encode(), headers=f'{{"argsrepr": "{SECRET}"}}', reason="undecodable",
        content_type="application/x-python-serialize", content_encoding="binary",
    )  # fmt: skip
    for words in (("list",), ("show", str(number))):
        done = small_shell.type("quarantine", *words)
        assert "undecodable" in done.stdout
        assert SECRET not in done.stdout
    reveal = ("quarantine", "show", str(number), "--reveal", "--reason", "what is it?")
    assert SECRET not in small_shell.type(*reveal).stdout, "an admin's to see"
    assert SECRET in small_shell.type(*reveal, "--role", "admin").stdout


# -- relay and status -------------------------------------------------------------------------------------------------


def enqueue(shell: Shell, count: int) -> None:
    """Enqueue jobs from a process of their own, as an application does."""
    code = f"import shop\nfor n in range({count}): shop.charge.delay(order_id=n)"
    subprocess.run([sys.executable, "-c", code], cwd=shell.folder, env=shell.environment(), check=True, timeout=60)


def test_relay_once_publishes_what_is_due_and_says_how_many(shell: Shell, store: Store) -> None:
    enqueue(shell, 3)
    stuck = shell.type("status")
    assert stuck.returncode == 1
    assert "no relay is alive" in stuck.stderr
    done = shell.type("relay", "--once")
    assert (done.returncode, done.stdout) == (0, "3 taken to be published, 0 swept.\n"), done.stderr
    assert len(list((shell.folder / "queue").iterdir())) == 3
    assert store.counts() == {State.SENT: 3}
    assert shell.type("status").returncode == 1, "nobody would bring them back if their messages were lost"


def test_a_relay_in_the_foreground_publishes_is_seen_and_ends_on_term(shell: Shell, store: Store) -> None:
    process = shell.begin("relay")
    enqueue(shell, 2)
    eventually(lambda: store.counts() == {State.SENT: 2})
    accept(store, new_job(delay=LONG))
    well = shell.answer("status")
    assert (well["well"], well["relays_alive"]) == (True, 1)
    process.send_signal(signal.SIGTERM)
    out, err = process.communicate(timeout=30)
    assert process.returncode == 0, err
    assert out == ""
    assert "Stop with Ctrl-C" in err
    left = json.loads(shell.type("status", "--json").stdout)
    assert (left["well"], left["relays_alive"]) == (False, 0)


def test_relay_once_without_a_broker_says_so_and_loses_nothing(small_shell: Shell, small_store: Store) -> None:
    enqueue(small_shell, 2)
    with (small_shell.folder / "shop.py").open("a") as module:
        module.write('app.conf.broker_url = "redis://:hush@127.0.0.1:1/0"\n')
    done = small_shell.type("relay", "--once")
    assert done.returncode == 1
    assert "The broker cannot be reached" in done.stderr
    assert "hush" not in done.stderr
    assert small_store.counts() == {State.PENDING: 2}


# -- check ------------------------------------------------------------------------------------------------------------


def test_check_names_what_is_unsafe(small_shell: Shell) -> None:
    done = small_shell.type("check")
    assert done.returncode == 1
    assert "CHECK-102 warning: late acks do not bring a killed job back: shop.mail" in done.stdout
    assert small_shell.type("check", "--fail-on", "error").returncode == 0
    [first, *_] = json.loads(small_shell.type("check", "--json").stdout)
    assert (first["code"], first["tasks"]) == ("CHECK-102", ["shop.mail"])


# -- what is wrong with the line --------------------------------------------------------------------------------------


@pytest.mark.parametrize("app", [None, "bare", "nowhere", "broken"])
def test_an_app_that_cannot_be_used_is_said_in_words_that_help(either_shell: Shell, app: str | None) -> None:
    done = either_shell.type("jobs", "list", app=app)
    said = {
        None: "-A your_module",
        "bare": "error [GUARD-103]",
        "nowhere": "nowhere",
        "broken": "the shop is closed",
    }[app]
    assert (done.returncode, done.stdout) == (2, "")
    assert said in done.stderr
    if either_shell.way == "celery-guard" or app in (
        None,
        "bare",
    ):  # loading an app is Celery's business in its own command
        assert "Traceback" not in done.stderr


def test_without_a_store_it_is_said_where_to_name_one(small_shell: Shell) -> None:
    done = small_shell.type("jobs", "list", CELERY_GUARD_STORE="")
    assert done.returncode == 2
    assert done.stderr.startswith("error [GUARD-101]: store")
    environment = small_shell.environment()
    del environment["CELERY_GUARD_STORE"]
    done = subprocess.run(
        small_shell.command("jobs", "list"),
        cwd=small_shell.folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 2
    assert "CELERY_GUARD_STORE" in done.stderr


def test_a_setting_that_does_not_exist_is_refused(small_shell: Shell) -> None:
    done = small_shell.type("jobs", "list", CELERY_GUARD_LEESE="30")
    assert (done.returncode, done.stdout) == (2, "")
    assert "did you mean 'lease'?" in done.stderr


def test_a_word_that_does_not_exist_ends_with_2(small_shell: Shell) -> None:
    for words in (("jbos",), ("jobs", "list", "--state", "dying")):
        assert small_shell.type(*words).returncode == 2


def test_celerys_own_help_names_the_guard(either_shell: Shell) -> None:
    done = either_shell.type("--help")
    assert done.returncode == 0
    assert "quarantine" in done.stdout
    own = subprocess.run(
        [str(Path(sys.executable).with_name("celery")), "--help"], capture_output=True, text=True, timeout=60
    )
    assert re.search(r"^  guard ", own.stdout, re.MULTILINE)


def test_on_a_terminal_there_is_a_table(small_shell: Shell, small_store: Store) -> None:
    job = new_job()
    accept(small_store, job)
    ours, theirs = pty.openpty()
    try:
        subprocess.run(
            small_shell.command("jobs", "list"), cwd=small_shell.folder, stdout=theirs, stderr=theirs, timeout=60, check=True,
            env=small_shell.environment(TERM="xterm", COLUMNS="120"),
        )  # fmt: skip
        shown = os.read(ours, 65536).decode()
    finally:
        os.close(ours)
        os.close(theirs)
    assert "\x1b[1m" in shown
    assert job.id in shown


def test_a_worker_whose_store_has_no_tables_ends_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "bare.py").write_text(
        "from celery import Celery\nfrom celery_guard import Guard, GuardedTask\n"
        f"app = Celery('bare', broker='memory://')\nGuard(app, store='sqlite:///{tmp_path}/none.db')\n"
        "@app.task(base=GuardedTask)\ndef t(): ...\n",
        encoding="utf-8",
    )
    command = [sys.executable, "-m", "celery", "-A", "bare", "worker", "-P", "solo"]
    ended = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False)
    assert ended.returncode == 1
    assert "The worker does not start [GUARD-302]: The store's tables are missing" in ended.stderr
    assert "Run `celery -A bare guard store upgrade`." in ended.stderr
    assert "Traceback" not in ended.stderr
