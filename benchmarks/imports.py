"""What a process pays before it does anything: imports, and an app with one task."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

from .cost import Cost
from .lab import Lab
from .options import Options
from .rounds import compare

__all__ = ["of_app", "of_package"]

_CELERY = "from celery import Celery, Task\n"
_APP = "app = Celery('bench', broker='memory://')\n"
_PLAIN = _CELERY + _APP + "@app.task(base=Task)\ndef nothing(): pass\napp.finalize()\n"
_GUARDED = (
    _CELERY
    + "from celery_guard import Guard, GuardedTask\n"
    + _APP
    + "guard = Guard(app, store='postgresql+psycopg:///bench')\n"
    + "@app.task(base=GuardedTask)\ndef nothing(): pass\napp.finalize()\n"
)


def of_package(lab: Lab, options: Options) -> dict[str, Any]:
    """``import celery_guard`` beside Celery's own import."""
    return _compare(options, _CELERY, _CELERY + "import celery_guard\n")


def of_app(lab: Lab, options: Options) -> dict[str, Any]:
    """An app with one task, and with a guard that has its store named."""
    return _compare(options, _PLAIN, _GUARDED)


def _compare(options: Options, plain: str, guarded: str) -> dict[str, Any]:
    found = compare(options.rounds, _started(plain), _started(guarded), relay="not run", results="none")
    # more is worse here: how much longer it takes, not how much faster it is
    return {**found, "ratio": 1 / found["ratio"], "cpu_ratio": 1 / found["cpu_ratio"], "longer": True}


def _started(code: str) -> Callable[[], Cost]:
    def run() -> Cost:
        wall = time.monotonic()
        process = subprocess.Popen([sys.executable, "-c", code])
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode:
            raise RuntimeError(f"this ended with {process.returncode}:\n{code}")
        return Cost(1, time.monotonic() - wall, used.ru_utime + used.ru_stime)

    return run
