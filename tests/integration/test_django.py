"""Django's tests, each database in a process of its own: ``tests/django`` says what they are."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from celery_guard.testing.services import MARIADB, POSTGRESQL, REDIS
from tests.ledger import RESULTS

pytestmark = [pytest.mark.integration, pytest.mark.slow, pytest.mark.timeout(600)]

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("database", ["sqlite", "postgresql", "mariadb"])
def test_the_promises_hold_in_a_django_project(database: str, tmp_path: Path) -> None:
    REDIS.need()
    if database == "sqlite":
        store = f"sqlite:///{tmp_path / 'shop.db'}"
    else:
        # Django's test runner makes its own databases beside this one
        server = {"postgresql": POSTGRESQL, "mariadb": MARIADB}[database].need()
        store = urlsplit(server)._replace(path=f"/guard_django_{os.getpid()}").geturl()
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("CELERY", "PYTEST_"))}
    results = os.environ.get(RESULTS)
    kept = [f"--junitxml={results}/django-{database}.xml"] if results else []
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "tests/django", "-q", "-p", "no:cacheprovider", *kept],
        cwd=ROOT, env={**environment, "GUARD_DJANGO_STORE": store}, capture_output=True, text=True, timeout=590, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-12000:] + done.stderr[-2000:]
