"""The tutorial's own code and commands, as a reader types them."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from tests.integration.fleet import eventually

pytestmark = pytest.mark.integration

PAGE = (Path(__file__).parents[2] / "docs" / "tutorial.md").read_text(encoding="utf-8")
BIN = Path(sys.executable).parent


def blocks(kind: str) -> list[str]:
    return re.findall(rf"```{kind}\n(.*?)```", PAGE, re.DOTALL)


def test_the_tutorial_runs_as_it_is_written(tmp_path: Path) -> None:
    (tmp_path / "shop.py").write_text(blocks("python")[0], encoding="utf-8")
    environment = {**os.environ, "PATH": f"{BIN}{os.pathsep}{os.environ['PATH']}", "PYTHONPATH": str(tmp_path)}
    commands = blocks("console")[1].splitlines()
    assert commands[-1] == "celery -A shop worker"

    def typed(command: str) -> str:
        done = subprocess.run(
            shlex.split(command), cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=60, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    *before, worker = commands
    job_id = [typed(command) for command in before][-1].strip()
    process = subprocess.Popen(
        shlex.split(worker), cwd=tmp_path, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        show = f"celery -A shop guard jobs show {job_id} --json"
        eventually(lambda: json.loads(typed(show))["state"] == "succeeded", seconds=60, what="the job has run")
    finally:
        process.terminate()
        process.wait(30)
