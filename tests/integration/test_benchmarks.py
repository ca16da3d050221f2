"""The benchmarks run from end to end, with a few jobs and without their floors, so that they do not rot between two measurements."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from celery_guard.testing.services import POSTGRESQL, RABBITMQ

ROOT = Path(__file__).resolve().parents[2]

pytestmark = [pytest.mark.integration, pytest.mark.slow]

pytest.importorskip("psutil", reason="needs psutil, of the extra `benchmarks`")


@pytest.mark.timeout(600)
def test_every_figure_is_measured(tmp_path: Path) -> None:
    POSTGRESQL.need()
    RABBITMQ.need()
    report = tmp_path / "report.json"
    command = [sys.executable, "-m", "benchmarks", "--smoke", "--no-floors", "--json", str(report)]
    done = subprocess.run(command, cwd=ROOT, check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-6000:]
    figures = json.loads(report.read_text())["figures"]
    assert figures
    assert all(figure["ratio"] > 0 for figure in figures.values())
