"""The page on speed says what the report says."""

from __future__ import annotations

import json

import pytest

pytest.importorskip("psutil", reason="needs psutil, of the extra `benchmarks`")

from benchmarks.docs import PAGE, REPORT, page


def test_the_tables_are_those_of_the_report() -> None:
    text = PAGE.read_text()
    assert page(text, json.loads(REPORT.read_text())) == text, "run `python -m benchmarks --no-measure --write-docs`"
