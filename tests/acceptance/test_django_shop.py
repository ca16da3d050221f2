"""The example of a Django project, as its page says to run it."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.integration.fleet import eventually

pytestmark = pytest.mark.integration

EXAMPLE = Path(__file__).parents[2] / "examples" / "django_shop"
BIN = Path(sys.executable).parent


def test_the_django_shop_runs_as_its_page_says(tmp_path: Path) -> None:
    shop = tmp_path / "shop"
    shutil.copytree(EXAMPLE, shop, ignore=shutil.ignore_patterns("__pycache__", "queue", "*.db*"))
    left_out = ("CELERY", "DJANGO", "GUARD", "PYTHONPATH")
    environment = {name: value for name, value in os.environ.items() if not name.startswith(left_out)}
    environment["PATH"] = f"{BIN}{os.pathsep}{os.environ['PATH']}"
    [commands] = re.findall(r"```console\n(.*?)```", (EXAMPLE / "README.md").read_text(encoding="utf-8"), re.DOTALL)
    *before, worker = commands.splitlines()
    assert worker == "celery -A shop worker"

    def typed(command: str) -> str:
        done = subprocess.run(
            shlex.split(command), cwd=shop, env=environment, capture_output=True, text=True, timeout=60, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout + done.stderr

    said = [typed(command) for command in before]
    assert "Ran 2 tests" in said[2]
    assert "OK" in said[2]
    assert "shop.tasks.charge" in said[4]
    process = subprocess.Popen(
        shlex.split(worker), cwd=shop, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )

    def jobs() -> list[dict[str, str]]:
        listed = typed("python manage.py guard jobs list --state succeeded --json")
        found: list[dict[str, str]] = json.loads(listed[: listed.rindex("]") + 1])
        return found

    def succeeded() -> set[str]:
        return {job["task"] for job in jobs()}

    try:
        eventually(lambda: succeeded() == {"shop.tasks.charge", "shop.tasks.mail"}, seconds=60, what="both have run")
    finally:
        process.terminate()
        process.wait(30)
    [charge] = [job["id"] for job in jobs() if job["task"] == "shop.tasks.charge"]
    asked = f"from django.test import Client; c = Client(); print(c.get('/jobs/{charge}').json(), c.get('/jobs/nobody').status_code)"
    assert "{'status': 'done', 'progress': None, 'over': True} 404" in typed(f'python manage.py shell -c "{asked}"')
    question = "from shop.models import Order; print(list(Order.objects.values_list('charged', 'mailed')))"
    assert "[(True, True)]" in typed(f'python manage.py shell -c "{question}"')
