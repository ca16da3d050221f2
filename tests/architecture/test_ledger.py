"""The guarantee ledger names tests, and each of them is there."""

from __future__ import annotations

import json
import re
from pathlib import Path

from tests.ledger import PAGE, named_in, not_shown, read, stands_for

ROOT = Path(__file__).parents[2]
DEFINED = re.compile(r"^\s*(?:async )?def (test_\w+)\(", re.MULTILINE)


CHANGED = re.compile(r"^\| `(test_\w+\.py::\S+)` \| (.+) \|$", re.MULTILINE)


def named() -> set[str]:
    return named_in(PAGE.read_text(encoding="utf-8"))


def defined() -> set[str]:
    folders = (ROOT / "tests", ROOT / "celery_guard" / "testing")
    return {
        name for folder in folders for page in folder.rglob("*.py") for name in DEFINED.findall(page.read_text("utf-8"))
    }


def test_every_test_that_the_ledger_names_is_there() -> None:
    tests = defined()
    assert named()
    lost = [name for name in named() if not any(stands_for(name, test) for test in tests)]
    assert not lost, lost


def test_every_test_that_is_named_after_a_case_is_in_the_ledger() -> None:
    cases = {match[0] + "*" for test in defined() if (match := re.match(r"test_[a-z]+_\d+_", test))}
    known = {name for name in named() if name.endswith("*")}
    assert cases <= known, sorted(cases - known)


def test_what_the_guard_changes_of_celerys_suite_is_listed_with_the_reasons_that_a_run_goes_by() -> None:
    page = PAGE.read_text(encoding="utf-8")
    expected = json.loads((ROOT / "tests" / "celery_suite" / "expected.json").read_text())
    assert dict(CHANGED.findall(page)) == expected["changed"]


RESULTS = """
<testsuites><testsuite>
  <testcase classname="tests.integration.test_a" name="test_passes[one]">
    <properties><property name="stack" value="rabbitmq-mariadb"/></properties></testcase>
  <testcase classname="tests.unit.test_b" name="test_passes[sqlite]"/>
  <testcase classname="tests.conformance.test_redis" name="test_passes"/>
  <testcase classname="tests.unit.test_b" name="test_passes[postgresql]"><skipped/></testcase>
  <testcase classname="tests.unit.test_b" name="test_is_skipped[postgresql]"><skipped/></testcase>
  <testcase classname="tests.unit.test_b" name="test_dup_1_fails[a]"><failure/></testcase>
  <testcase classname="tests.unit.test_b" name="test_dup_1_fails[b]"/>
  <testcase classname="tests.unit.test_b" name="test_breaks_down"><error/></testcase>
</testsuite></testsuites>
"""


def test_a_run_bears_out_what_passed_and_says_where(tmp_path: Path) -> None:
    (tmp_path / "unit.xml").write_text(RESULTS)
    shown = read([tmp_path / "unit.xml"])
    assert shown["test_passes"].ended == {"passed": 3, "skipped": 1}
    assert shown["test_passes"].on == {"rabbitmq-mariadb", "sqlite", "redis"}
    assert not_shown("`test_passes` `test_pass*`", shown) == {}


def test_what_a_run_does_not_bear_out_is_said_with_why(tmp_path: Path) -> None:
    (tmp_path / "unit.xml").write_text(RESULTS)
    page = "`test_is_skipped`, `test_dup_1_*`, `test_breaks_down` and `test_of_long_ago`; not test_of_nobody"
    assert not_shown(page, read([tmp_path / "unit.xml"])) == {
        "test_is_skipped": "was only skipped",
        "test_dup_1_*": "1 of its cases failed",
        "test_breaks_down": "1 of its cases failed",
        "test_of_long_ago": "was not run",
    }
