"""Who may import whom: the contracts of pyproject.toml hold, and each of them would notice when it did not."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

#: Rooms with a contract of their own; one that is still empty is furnished in the copy.
ROOMS = ("store", "store/sql", "flow", "watch", "integrations", "integrations/celery", "operate", "operate/cli")


def lint_imports(folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [
            sys.executable,
            "-c",
            "from importlinter.cli import lint_imports_command as c; c()",
            "--no-logo",
            "--no-cache",
        ],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(folder), "COLUMNS": "200"},
        capture_output=True,
        text=True,
        timeout=60,
    )


def test_the_rooms_import_only_what_they_may() -> None:
    answer = lint_imports(ROOT)
    assert answer.returncode == 0, answer.stdout + answer.stderr


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("rooms")
    shutil.copy(ROOT / "pyproject.toml", folder)
    shutil.copytree(ROOT / "celery_guard", folder / "celery_guard", ignore=shutil.ignore_patterns("__pycache__"))
    for room in ROOMS:
        package = folder / "celery_guard" / room
        package.mkdir(parents=True, exist_ok=True)
        (package / "__init__.py").touch()
    return folder


@pytest.mark.parametrize(
    ("room", "line", "contract"),
    [
        ("errors", "import celery_guard.job.state", "The rooms"),
        ("job", "import celery_guard.store.protocol", "The rooms"),
        ("store", "import celery_guard.flow", "The rooms"),
        ("flow", "import celery_guard.integrations", "The rooms"),
        ("flow", "import celery_guard.store.sql", "Journeys know"),
        ("flow", "import celery_guard.store.redis", "Journeys know"),
        ("flow", "import redis", "Database drivers"),
        ("flow", "import celery", "Celery is spoken"),
        ("watch", "import kombu.message", "Celery is spoken"),
        ("flow", "import sqlalchemy", "SQLAlchemy and Alembic"),
        ("integrations/celery", "import alembic.config", "SQLAlchemy and Alembic"),
        ("flow", "import psycopg", "Database drivers"),
        ("integrations/celery", "import click", "The command line"),
        ("job", "import prometheus_client", "Metrics and traces"),
        ("operate/cli", "import opentelemetry.trace", "Metrics and traces"),
        ("flow", "import django.db", "Django is spoken"),
    ],
)
def test_an_import_across_the_rooms_is_noticed(copy: Path, room: str, line: str, contract: str) -> None:
    package = copy / "celery_guard" / room
    intruder = package / "intruder.py" if package.is_dir() else package.with_suffix(".py")
    before = intruder.read_text() if intruder.exists() else None
    intruder.write_text(f"{before or ''}\n{line}\n")
    try:
        answer = lint_imports(copy)
    finally:
        if before is None:
            intruder.unlink()
        else:
            intruder.write_text(before)
    assert answer.returncode == 1, answer.stdout + answer.stderr
    broken = [text for text in answer.stdout.splitlines() if "BROKEN" in text]
    assert [text for text in broken if text.startswith(contract)], answer.stdout


def test_a_new_room_must_find_its_place_first(copy: Path) -> None:
    room = copy / "celery_guard" / "attic.py"
    room.write_text('"""A room that no contract knows."""\n')
    try:
        answer = lint_imports(copy)
    finally:
        room.unlink()
    assert answer.returncode == 1, answer.stdout + answer.stderr
    assert "celery_guard.attic" in answer.stdout
