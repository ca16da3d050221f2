"""``guard jobs`` and ``guard explain`` through the real entry points, on a real store, as an operator types them."""

from __future__ import annotations

import json
import os
import pty
import re
import select
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from celery_guard.job.state import State
from celery_guard.store import open_store
from celery_guard.store.protocol import Store
from celery_guard.testing.conformance.builders import LONG, dead, failure, new_job, succeeded
from celery_guard.testing.conformance.moves import accept, claim, die, eventually, found, start, succeed
from celery_guard.testing.databases import database
from celery_guard.testing.services import POSTGRESQL

from .shell import Shell
from .test_command_line import enqueue

pytestmark = pytest.mark.integration


@pytest.fixture(params=[("celery-guard", "sqlite"), ("celery", "postgresql")], ids=" on ".join)
def shell(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Shell]:
    """Both ways in, each on another database."""
    way, kind = request.param
    if kind == "sqlite":
        shell = Shell(tmp_path, way, f"sqlite:///{tmp_path / 'guard.db'}")
        yield shell
        shell.close()
        return
    with database(POSTGRESQL.need()) as url:
        shell = Shell(tmp_path, way, url)
        yield shell
        shell.close()


@pytest.fixture
def store(shell: Shell) -> Iterator[Store]:
    """The shell's store, with its tables."""
    store = open_store(shell.url)
    store.upgrade()
    yield store
    store.close()


def ids(shell: Shell, *words: str) -> list[str]:
    return [job["id"] for job in shell.answer("jobs", "list", *words)]


def test_jobs_are_narrowed_down_by_every_word(shell: Shell, store: Store) -> None:
    enqueue(shell, 2)
    slow = die(
        store, new_job(task="shop.mail", queue="slow", tenant="acme"),
        failure=failure(failure_class="throttled", cause="c0ffee"),
    )  # fmt: skip
    [charged] = ids(shell, "--task", "shop.charge", "--key", "1", "--younger", "1h")
    assert found(store, charged).task == "shop.charge"
    words = (
        "--queue",
        "slow",
        "--tenant",
        "acme",
        "--failure-class",
        "throttled",
        "--cause",
        "c0ffee",
        "--state",
        "dead",
    )
    assert ids(shell, *words, "--older", "0s") == [slow.id]
    assert ids(shell, "--scope", "acme") == [slow.id]
    untold = shell.type("jobs", "list", "--key", "7")
    assert untold.returncode == 2
    assert "--task" in untold.stderr
    unknown = shell.type("jobs", "list", "--task", "shop.mail", "--key", "7")
    assert unknown.returncode == 1
    assert unknown.stderr.startswith("error [GUARD-605]: ")


def test_show_tells_the_story_of_a_job_and_what_is_not_kept(shell: Shell, store: Store) -> None:
    granted = die(store, failure=failure("card declined"))
    store.replay([granted.id])
    again = claim(store, granted.id)
    assert shell.type("jobs", "cancel", granted.id, "--reason", "enough", "--actor", "ann").returncode == 0
    assert store.settle(succeeded(again))
    shown = shell.type("jobs", "show", granted.id)
    assert shown.returncode == 0
    story = shown.stdout.split("what happened, oldest first\n")[1].splitlines()[1:]
    assert [re.split(r"  +", line)[1] for line in story] == [
        "accepted", "failed", "started", "jobs.cancel intended", "jobs.cancel done", "succeeded", "asked to stop", "replayed", "told",
    ]  # fmt: skip
    assert "Not kept" in shown.stderr
    document = shell.answer("jobs", "show", granted.id)
    assert [moment["what"] for moment in document["timeline"]][:3] == ["accepted", "failed", "started"]
    assert document["failures"][0]["message"] == "card declined"
    missing = shell.type("jobs", "show", "nobody")
    assert (missing.returncode, missing.stdout) == (1, "")
    assert missing.stderr.startswith("error [GUARD-603]: ")


def test_a_filter_is_shown_before_it_is_cancelled(shell: Shell, store: Store) -> None:
    wrong, right = [new_job(task="shop.charge", tenant="acme") for _ in range(3)], new_job(task="shop.mail")
    accept(store, *wrong, right)
    words = ("jobs", "cancel", "--task", "shop.charge", "--reason", "wrong file")
    looked = shell.type(*words, "--dry-run")
    assert looked.returncode == 0, looked.stderr
    assert re.search(r"^shop.charge +3$", looked.stdout, re.MULTILINE)
    assert re.search(r"^acme +3$", looked.stdout, re.MULTILINE)
    assert all(job.id in looked.stdout for job in wrong)
    assert shell.answer(*words, "--dry-run")["count"] == 3
    asked = shell.type(*words)
    assert asked.returncode == 2
    assert "--yes" in asked.stderr
    assert store.counts() == {State.PENDING: 4}
    done = shell.type(*words, "--yes")
    assert done.returncode == 0, done.stderr
    assert "3 cancelled, 0 asked to stop, 0 too late, by " in done.stderr
    assert store.counts() == {State.PENDING: 1, State.CANCELLED: 3}
    again = shell.type(*words, "--yes")
    assert (again.returncode, "no such jobs" in again.stderr) == (0, True)


def test_many_are_cancelled_only_under_their_number(shell: Shell, store: Store) -> None:
    accept(store, *(new_job(task="shop.charge") for _ in range(4)))
    words = ("jobs", "cancel", "--task", "shop.charge", "--reason", "wrong file", "--yes")
    refused = shell.type(*words, CELERY_GUARD_CONFIRM_ABOVE="3")
    assert refused.returncode == 1
    assert refused.stderr.splitlines()[-1].startswith("error [GUARD-602]: ")
    assert "--confirm 4" in refused.stderr
    assert store.counts() == {State.PENDING: 4}
    assert shell.type(*words, "--confirm", "4", CELERY_GUARD_CONFIRM_ABOVE="3").returncode == 0
    assert store.counts() == {State.CANCELLED: 4}


@pytest.mark.parametrize("words", [(), ("an-id", "--task", "shop.charge")], ids=["nothing", "both"])
def test_a_cancel_names_either_ids_or_a_filter(shell: Shell, words: tuple[str, ...]) -> None:
    done = shell.type("jobs", "cancel", *words, "--reason", "why")
    assert done.returncode == 2
    assert "ids or a filter" in done.stderr


def test_what_is_unknown_is_settled_by_a_person(shell: Shell, store: Store) -> None:
    granted = start(store)
    assert store.settle(dead(granted, state=State.UNKNOWN))
    look = shell.type("explain", granted.id)
    assert look.returncode == 1
    assert f"jobs settle {granted.id}" in look.stdout
    words = ("jobs", "settle", granted.id, "--reason", "the bank says so")
    assert shell.type(*words, "--as", "cancelled").returncode == 2
    assert shell.type(*words, "--as", "dead", "--value", "7").returncode == 2
    assert shell.type(*words, "--as", "succeeded", "--value", "{").returncode == 2
    assert found(store, granted.id).state is State.UNKNOWN
    done = shell.type(*words, "--as", "succeeded", "--value", '{"id": 7}')
    assert (done.returncode, done.stdout) == (0, f"{granted.id}  succeeded\n"), done.stderr
    outcome = store.outcome(granted.id)
    assert outcome is not None
    assert outcome[1] is not None
    assert json.loads(outcome[1].body) == {"id": 7}
    late = shell.type(*words, "--as", "pending")
    assert late.returncode == 1
    assert late.stderr.startswith("error [GUARD-605]: ")


# -- watch ------------------------------------------------------------------------------------------------------------


def test_watch_prints_each_change_and_ends_with_the_jobs(shell: Shell, store: Store) -> None:
    one, other = start(store), start(store)
    process = shell.begin("jobs", "watch", one.id, other.id, "--every", "0.1", "--json")
    assert process.stdout is not None
    first = [json.loads(process.stdout.readline()) for _ in range(2)]
    assert [job["shown_state"] for job in first] == ["running", "running"]
    assert store.settle(succeeded(one))
    assert json.loads(process.stdout.readline())["id"] == one.id
    assert store.settle(dead(other))
    last = json.loads(process.stdout.readline())
    assert (last["id"], last["state"]) == (other.id, "dead")
    out, err = process.communicate(timeout=30)
    assert (out, process.returncode) == ("", 1), err


def test_watch_of_jobs_that_succeeded_ends_at_once_with_0(shell: Shell, store: Store) -> None:
    done = succeed(store)
    watched = shell.type("jobs", "watch", done.id)
    assert (watched.returncode, watched.stdout) == (0, f"{done.id}  shop.charge  succeeded  attempt 1\n")
    assert shell.type("jobs", "watch", "nobody").returncode == 1
    assert shell.type("jobs", "watch", "--task", "shop.none").returncode == 0
    assert shell.type("jobs", "watch").returncode == 2


def test_watch_on_a_terminal_draws_a_table_until_the_end(shell: Shell, store: Store) -> None:
    granted = start(store)
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        shell.command("jobs", "watch", "--task", "shop.charge", "--every", "0.1"), cwd=shell.folder, stdout=theirs, stderr=theirs,
        env=shell.environment(TERM="xterm", COLUMNS="160"),
    )  # fmt: skip
    os.close(theirs)
    try:
        shown = ""

        def reads(word: str) -> bool:
            nonlocal shown
            if select.select([ours], [], [], 0.1)[0]:
                try:
                    shown += os.read(ours, 65536).decode()
                except OSError:  # the other end is closed
                    time.sleep(0.1)
            return word in shown

        eventually(lambda: reads("running"))
        assert store.settle(succeeded(granted))
        eventually(lambda: reads("succeeded"))
        eventually(lambda: reads("") and process.poll() is not None)
        assert process.returncode == 0
    finally:
        process.kill()
        process.wait(30)
        os.close(ours)
    assert granted.id in shown
    assert "\x1b[" in shown


# -- explain ----------------------------------------------------------------------------------------------------------


def test_explain_says_what_stalls_and_what_to_type(shell: Shell, store: Store) -> None:
    well = shell.type("explain")
    assert (well.returncode, well.stdout) == (0, "Nothing stalls.\n"), well.stderr
    enqueue(shell, 1)
    done = shell.type("explain")
    assert done.returncode == 1
    assert done.stdout.startswith("EXPLAIN-101  no relay is alive\n")
    typed = {"celery-guard": "celery-guard -A shop relay", "celery": "celery -A shop guard relay"}[shell.way]
    assert re.search(rf"^  type +{typed}$", done.stdout, re.MULTILINE)
    [job] = store.jobs()
    about = shell.type("explain", job.id)
    assert about.returncode == 1
    assert re.findall(r"^EXPLAIN-\d+", about.stdout, re.MULTILINE) == ["EXPLAIN-101", "EXPLAIN-111"]
    assert store.hold("relay:0", "host:1", LONG)
    well = shell.type("explain", "--json")
    assert well.returncode == 0
    assert json.loads(well.stdout) == {"job": None, "well": True, "blockers": []}


def test_explain_without_tables_ends_with_3(shell: Shell) -> None:
    done = shell.type("explain")
    assert done.returncode == 3
    assert done.stdout.startswith("EXPLAIN-100")
    typed = f"{shell.way} -A shop {'guard ' if shell.way == 'celery' else ''}store upgrade"
    assert f"Run `{typed}`." in done.stdout
    assert done.stdout.endswith(f"  type  {typed}\n")
    assert shell.type("explain", "nobody").returncode == 3


def test_explain_with_a_dead_broker_says_so_and_no_password(shell: Shell, store: Store) -> None:
    enqueue(shell, 1)
    with (shell.folder / "shop.py").open("a") as module:
        module.write('app.conf.broker_url = "redis://:hush@127.0.0.1:1/0"\n')
    done = shell.type("explain")
    assert "EXPLAIN-103" in done.stdout
    assert "hush" not in done.stdout + done.stderr
