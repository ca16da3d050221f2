"""A pytest plug-in that writes down how each test ended, whatever it went through on the way: one JSON object, node id to word.

The words are pytest's (``passed failed skipped xfailed xpassed``). A subtest that fails fails its test; of a test that is run
again, as many of Celery's are, the last time counts.
"""

from __future__ import annotations

import json
import os
from collections import defaultdict
from pathlib import Path

import pytest

#: Where to write it.
FILE = "CELERY_SUITE_OUTCOMES"

_ended: dict[str, str] = {}
_seconds: defaultdict[str, float] = defaultdict(float)


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Note it, phase by phase."""
    name = report.nodeid.removeprefix("t/integration/")
    _seconds[name] += report.duration
    if report.outcome == "rerun":  # type: ignore[comparison-overlap]
        _ended.pop(name, None)
        return
    word = _word(report)
    if word is not None and _ended.get(name) != "failed":
        _ended[name] = word


def _word(report: pytest.TestReport) -> str | None:
    if report.failed:
        return "failed"
    expected_to_fail = hasattr(report, "wasxfail")
    if report.skipped:
        return "xfailed" if expected_to_fail else "skipped"
    if report.when != "call":
        return None
    return "xpassed" if expected_to_fail else "passed"


def pytest_sessionfinish() -> None:
    """Write it down."""
    text = json.dumps({"ended": _ended, "seconds": {name: round(value, 1) for name, value in _seconds.items()}})
    Path(os.environ[FILE]).write_text(text)
