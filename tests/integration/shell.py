"""A folder with a shop in it, and somebody who types at it: the command line as processes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

__all__ = ["Shell"]

MODULES = {
    "shop": """
        from celery import Celery
        from celery_guard import Contract, Guard, GuardedTask

        app = Celery("shop", broker="filesystem://")
        app.conf.broker_transport_options = {
            "data_folder_in": "queue", "data_folder_out": "queue", "control_folder": "control",
        }
        guard = Guard(app)

        @app.task(name="shop.charge", base=GuardedTask, contract=Contract(owner="payments", key="order_id"))
        def charge(order_id): ...

        @app.task(name="shop.mail", acks_late=True)
        def mail(to): ...
    """,
    "bare": """
        from celery import Celery

        app = Celery("bare", broker="memory://")
    """,
    "broken": """
        raise RuntimeError("the shop is closed")
    """,
}


class Shell:
    """A folder with an app in it, and one of the two ways to type at it."""

    def __init__(self, folder: Path, way: str, url: str) -> None:
        self.folder, self.way, self.url = folder, way, url
        for name in ("queue", "control"):
            (folder / name).mkdir()
        for name, text in MODULES.items():
            (folder / f"{name}.py").write_text(textwrap.dedent(text), encoding="utf-8")
        self._process: subprocess.Popen[str] | None = None

    def command(self, *words: str, app: str | None = "shop") -> list[str]:
        """The command line of these words."""
        program = str(Path(sys.executable).with_name(self.way))
        named = [] if app is None else ["-A", app]
        return [program, *named, *(["guard"] if self.way == "celery" else []), *words]

    def environment(self, **more: str) -> dict[str, str]:
        """This test's environment, without what names an app, with the store."""
        left_out = ("CELERY_", "APP", "NO_COLOR", "FORCE_COLOR", "COLUMNS")
        kept = {name: value for name, value in os.environ.items() if not name.startswith(left_out)}
        return {**kept, "CELERY_GUARD_STORE": self.url, "PYTHONWARNINGS": "ignore", **more}

    def type(self, *words: str, app: str | None = "shop", **more: str) -> subprocess.CompletedProcess[str]:
        """Type the words and wait for the end."""
        return subprocess.run(
            self.command(*words, app=app), cwd=self.folder, env=self.environment(**more), capture_output=True, text=True,
            timeout=240,
        )  # fmt: skip

    def answer(self, *words: str) -> Any:
        """Type the words with ``--json``; the answer, of a command that ends with 0."""
        done = self.type(*words, "--json")
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    def begin(self, *words: str) -> subprocess.Popen[str]:
        """Type the words, and do not wait."""
        self._process = subprocess.Popen(
            self.command(*words), cwd=self.folder, env=self.environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            text=True,
        )  # fmt: skip
        return self._process

    def close(self) -> None:
        """End what was begun."""
        if self._process is not None and self._process.poll() is None:
            self._process.kill()
            self._process.communicate(timeout=30)
