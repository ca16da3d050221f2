"""The guarantee ledger names tests, and each of them is there."""

from __future__ import annotations

import json
import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
NAMED = re.compile(r"`(test_\w+\*?)`")
DEFINED = re.compile(r"^\s*(?:async )?def (test_\w+)\(", re.MULTILINE)


CHANGED = re.compile(r"^\| `(test_\w+\.py::\S+)` \| (.+) \|$", re.MULTILINE)


def named() -> set[str]:
    return set(NAMED.findall((ROOT / "docs" / "guarantees.md").read_text(encoding="utf-8")))


def defined() -> set[str]:
    folders = (ROOT / "tests", ROOT / "celery_guard" / "testing")
    return {
        name for folder in folders for page in folder.rglob("*.py") for name in DEFINED.findall(page.read_text("utf-8"))
    }


def test_every_test_that_the_ledger_names_is_there() -> None:
    tests = defined()
    assert named()
    lost = [
        name
        for name in named()
        if not any(test == name or (name[-1] == "*" and test.startswith(name[:-1])) for test in tests)
    ]
    assert not lost, lost


def test_every_test_that_is_named_after_a_case_is_in_the_ledger() -> None:
    cases = {match[0] + "*" for test in defined() if (match := re.match(r"test_[a-z]+_\d+_", test))}
    known = {name for name in named() if name.endswith("*")}
    assert cases <= known, sorted(cases - known)


def test_what_the_guard_changes_of_celerys_suite_is_listed_with_the_reasons_that_a_run_goes_by() -> None:
    page = (ROOT / "docs" / "guarantees.md").read_text(encoding="utf-8")
    expected = json.loads((ROOT / "tests" / "celery_suite" / "expected.json").read_text())
    assert dict(CHANGED.findall(page)) == expected["changed"]
