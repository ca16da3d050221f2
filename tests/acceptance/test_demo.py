"""The main job: a real import survives killed workers, doubled messages and failing rows, and the demo would say if it did not."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

pytestmark = [pytest.mark.integration, pytest.mark.slow, pytest.mark.timeout(600)]

DEMO = [sys.executable, "-c", "from celery_guard.operate.cli.main import main; main()", "demo"]


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """Where the demo is started: a folder with nothing of the project in it, and a folder of its own for what is temporary."""
    (tmp_path / "here").mkdir()
    (tmp_path / "tmp").mkdir()
    return tmp_path


def environment(place: Path) -> dict[str, str]:
    return {**os.environ, "TMPDIR": str(place / "tmp"), "CELERY_GUARD_STORE": "sqlite:////nowhere/of-somebody-else.db"}


def run_demo(place: Path, *options: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*DEMO, *options], cwd=place / "here", env=environment(place), capture_output=True, text=True, timeout=500
    )


def test_every_importable_row_is_there_exactly_once_and_every_other_is_a_dead_letter(place: Path) -> None:
    answer = run_demo(place, "--rows", "80", "--kills", "5", "--seed", "11", "--json")
    assert answer.returncode == 0, answer.stderr
    told = json.loads(answer.stdout)
    guarded, early, late = told["imports"]
    assert (told["seed"], told["good"]) == (11, True)
    assert guarded["problems"] == []
    assert (guarded["rows"], guarded["importable"], guarded["imported"]) == (82, 80, 80)
    assert (guarded["missing"], guarded["doubled"], guarded["dead"], guarded["left_by_rollback"]) == (0, 0, 2, 0)
    assert guarded["kills"]["row"] == 2, "their processes died under them"
    assert guarded["failed_for_a_while"] == 4, "two rows, twice each"
    assert guarded["delivered_twice"] >= 4
    # what the same does to plain Celery
    assert (early["dead"], late["dead"]) == (None, None)
    assert early["imported"] + early["missing"] == late["imported"] + late["missing"] == 80
    assert late["doubled"] >= 4, "each message that came twice was run twice"
    # it leaves nothing behind, wherever it is started
    assert [*(place / "tmp").iterdir(), *(place / "here").iterdir()] == []


def test_the_table_compares_and_what_was_kept_can_be_looked_into(place: Path) -> None:
    answer = run_demo(place, "--rows", "20", "--kills", "0", "--seed", "1", "--keep", "kept", "--no-plain")
    assert answer.returncode == 0, answer.stderr
    lines = [line.split() for line in answer.stdout.splitlines()]
    for line in ("rows in the file 22", "rows in the database 20", "missing 0", "doubled effects 0", "dead letters 2"):
        assert line.split() in lines, answer.stdout
    assert "exactly once" in answer.stdout
    assert "seed 1:" in answer.stderr
    kept = place / "here" / "kept" / "guarded"
    assert {"airports.db", "airports.csv", "node1.log"} <= {path.name for path in kept.iterdir()}


def test_it_says_so_when_time_is_up(place: Path) -> None:
    answer = run_demo(place, "--rows", "20", "--timeout", "1", "--no-plain")
    assert answer.returncode == 1
    assert "--timeout" in answer.stderr
    assert "Traceback" not in answer.stderr


@pytest.fixture
def running(place: Path) -> Iterator[subprocess.Popen[str]]:
    """A demo whose workers are at work."""
    # a run in the background of a shell ignores Ctrl-C, and so would the demo
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    demo = subprocess.Popen(
        [*DEMO, "--rows", "3000", "--kills", "0", "--no-plain"],
        cwd=place / "here", env=environment(place), stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    signal.signal(signal.SIGINT, before)
    assert demo.stderr is not None
    for line in demo.stderr:
        if "rows are done" in line:
            break
    yield demo
    demo.kill()
    demo.wait()
    demo.stderr.close()


@pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="needs /proc to see the processes of others")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL], ids=lambda number: number.name)
def test_no_process_outlives_the_demo(running: subprocess.Popen[str], place: Path, number: signal.Signals) -> None:
    assert len(started_by(running.pid)) >= 6, "two nodes, each with two children"
    running.send_signal(number)
    assert running.wait(timeout=60) != 0
    until(lambda: started_by(running.pid) == [])
    if number is not signal.SIGKILL:
        assert [*(place / "tmp").iterdir()] == []


def started_by(demo: int) -> list[int]:
    """The living processes of this demo: its mark is in their environment."""
    mark = f"GUARD_DEMO_PARENT={demo}".encode()
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                marked = mark in (entry / "environ").read_bytes().split(b"\0")
            except OSError:
                continue  # it has ended, or is somebody else's
            if marked:
                found.append(int(entry.name))
    return found


def until(true: Callable[[], Any], seconds: float = 60) -> None:
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end, "it never became true"
        time.sleep(0.05)
