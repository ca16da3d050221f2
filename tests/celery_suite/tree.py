"""Celery's integration tests, of the version that is installed: fetched from the package index, never kept here."""

from __future__ import annotations

import subprocess
import sys
import tarfile
from pathlib import Path

import celery

__all__ = ["VERSION", "fetch"]

VERSION: str = celery.__version__

#: What the suite's own configuration says, without what is for its other tests.
_INI = """\
[pytest]
addopts = --strict-markers -p no:randomly -p no:cacheprovider -p celery.contrib.pytest
python_classes = test_*
xfail_strict = true
markers =
    flaky
    timeout
    amqp
"""


def fetch(folder: Path) -> Path:
    """The folder in which ``t/integration`` lies, under ``folder``."""
    tree = folder / f"celery-{VERSION}"
    if (tree / "pytest.ini").exists():
        return tree
    subprocess.run(
        [
            sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--no-binary", "celery",
            "--dest", str(folder), f"celery=={VERSION}",
        ],
        check=True,
    )  # fmt: skip
    with tarfile.open(folder / f"celery-{VERSION}.tar.gz") as archive:
        for member in archive:
            # the tests and what they import; Celery itself is the installed one
            if member.isfile() and member.name.startswith((f"celery-{VERSION}/t/integration/", *_beside())):
                archive.extract(member, folder, filter="data")
    (tree / "pytest.ini").write_text(_INI)
    return tree


def _beside() -> tuple[str, ...]:
    return tuple(f"celery-{VERSION}/t/{name}.py" for name in ("__init__", "canvas_helpers", "skip"))
