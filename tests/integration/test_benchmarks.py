"""The benchmarks run from end to end, with a few jobs and without their floors, so that they do not rot between two measurements."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from celery_guard.testing.services import POSTGRESQL

ROOT = Path(__file__).resolve().parents[2]

pytestmark = [pytest.mark.integration, pytest.mark.slow]

#: One of each way to measure, but for those that fill a table or a memory first.
FIGURES = (
    "worker-redis-postgresql",
    "delay",
    "relay-redis",
    "pickup-redis",
    "trips-redis",
    "import",
    "bytes",
)

pytest.importorskip("psutil", reason="needs psutil, of the extra `benchmarks`")


@pytest.mark.timeout(600)
def test_each_way_to_measure_comes_to_an_end(tmp_path: Path) -> None:
    POSTGRESQL.need()
    report = tmp_path / "report.json"
    only = [word for name in FIGURES for word in ("--only", name)]
    command = [sys.executable, "-m", "benchmarks", "--smoke", "--no-floors", "--json", str(report), *only]
    done = subprocess.run(command, cwd=ROOT, check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-6000:]
    figures = json.loads(report.read_text())["figures"]
    assert set(figures) == set(FIGURES)
    assert all(figure["ratio"] > 0 for figure in figures.values())
