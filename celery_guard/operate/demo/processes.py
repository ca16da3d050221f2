"""The environment of an import's processes, and running one of its steps."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import celery_guard

from .plan import FOLDER, PARENT, example_folder

__all__ = ["environment", "step"]

#: Settings of somebody's own app, which would reach the example's.
_FOREIGN = ("CELERY_", "AIRPORTS_", "GUARD_DEMO_")

#: Lines of a failed step that are shown.
_SHOWN = 15


def environment(folder: Path, settings: Mapping[str, str]) -> dict[str, str]:
    """That of this process without settings for Celery, with the example on the path and all that it writes in ``folder``."""
    # where killed processes leave their temporary files
    (folder / "tmp").mkdir(parents=True, exist_ok=True)
    own = {name: value for name, value in os.environ.items() if not name.startswith(_FOREIGN)}
    paths = [str(example_folder())]
    tree = Path(celery_guard.__file__).parent.parent
    if (tree / "pyproject.toml").exists():
        paths.append(str(tree))
    if own.get("PYTHONPATH"):
        paths.append(own["PYTHONPATH"])
    return {
        **own,
        **settings,
        "PYTHONPATH": os.pathsep.join(paths),
        "PYTHONUNBUFFERED": "1",
        "AIRPORTS_FOLDER": str(folder),
        "TMPDIR": str(folder / "tmp"),
        FOLDER: str(folder),
        PARENT: str(os.getpid()),
    }


def step(arguments: Sequence[str], folder: Path, environment: Mapping[str, str], seconds: float) -> str:
    """Run a step of :mod:`celery_guard.operate.demo.steps` in a process of its own; what it printed.

    Raises:
        RuntimeError: it failed; with the end of what it said.
        TimeoutError: it took longer than ``seconds``.
    """
    command = [sys.executable, "-m", "celery_guard.operate.demo.steps", *arguments]
    try:
        answer = subprocess.run(
            command, cwd=folder, env=dict(environment), capture_output=True, text=True, timeout=seconds, check=False
        )
    except subprocess.TimeoutExpired as error:
        raise TimeoutError(f"The step {arguments[0]} took longer than the demo's --timeout.") from error
    if answer.returncode != 0:
        said = "\n".join(answer.stderr.splitlines()[-_SHOWN:])
        raise RuntimeError(f"The step {' '.join(arguments)} ended with {answer.returncode}:\n{said}")
    return answer.stdout
