"""Hold the guarantee ledger against what a run of the tests has shown.

    python -m tests.ledger RESULTS...            each test that the ledger names passed; exit status 1 where one did not
    python -m tests.ledger --write RESULTS...    and write what was counted into docs/guarantees.md

``RESULTS`` are files that ``pytest --junitxml`` wrote, those of one run of ``./check tests``.
"""

from __future__ import annotations

import argparse
import platform
import re
import sys
import xml.etree.ElementTree as ElementTree
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timezone
from importlib.metadata import version
from pathlib import Path

__all__ = ["PAGE", "RESULTS", "STACK", "main", "named_in", "not_shown", "read", "stands_for"]

PAGE = Path(__file__).parents[1] / "docs" / "guarantees.md"

#: Under which property of a test's case stands what it ran on, where its name does not say it.
STACK = "stack"

#: The variable that names the folder to which results are written.
RESULTS = "GUARD_TEST_RESULTS"

_NAMED = re.compile(r"`(test_\w+\*?)`")
_HEADING = re.compile(r"^## (.+)$", re.MULTILINE)
_STORES = re.compile(r"sqlite|postgresql|mariadb")
_WRITTEN = re.compile(r"(?<=<!-- shown -->\n).*?(?=<!-- /shown -->)", re.DOTALL)


@dataclass
class Shown:
    """How the cases of one test, or of some, ended, and what they ran on."""

    tests: int = 0
    ended: Counter[str] = field(default_factory=Counter)
    on: set[str] = field(default_factory=set)


def main(arguments: Sequence[str] | None = None) -> int:
    """The command; its exit status."""
    parser = argparse.ArgumentParser("ledger", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--write", action="store_true", help="write what was counted into the ledger")
    parser.add_argument("results", nargs="+", type=Path, help="files of pytest --junitxml")
    options = parser.parse_args(arguments)
    shown = read(options.results)
    page = PAGE.read_text(encoding="utf-8")
    wrong = not_shown(page, shown)
    table = _table(page, shown)
    print(table)
    for name, said in wrong.items():
        print(f"{name}: {said}")
    if options.write and not wrong:
        PAGE.write_text(_WRITTEN.sub(lambda _: table, page), encoding="utf-8")
    return 1 if wrong else 0


def named_in(text: str) -> set[str]:
    """The names of tests in a text; one that ends in ``*`` stands for all that begin so."""
    return set(_NAMED.findall(text))


def stands_for(name: str, test: str) -> bool:
    """Whether a name in the ledger means this test."""
    return test == name or (name.endswith("*") and test.startswith(name[:-1]))


def not_shown(page: str, shown: Mapping[str, Shown]) -> dict[str, str]:
    """Each name on the page that this run does not bear out, and why."""
    wrong = {}
    for name in sorted(named_in(page)):
        ended = _together(shown, [name]).ended
        if bad := ended["failed"]:
            wrong[name] = f"{bad} of its cases failed"
        elif not ended["passed"]:
            wrong[name] = "was only skipped" if ended else "was not run"
    return wrong


def read(results: Iterable[Path]) -> Mapping[str, Shown]:
    """What is in the files, by the name of the test."""
    found: defaultdict[str, Shown] = defaultdict(lambda: Shown(tests=1))
    for path in results:
        # our own test run wrote it a moment ago
        for case in ElementTree.parse(path).iter("testcase"):  # noqa: S314
            one = found[case.get("name", "").partition("[")[0]]
            word = _word(case)
            one.ended[word] += 1
            if word == "passed":
                one.on |= _stacks(case)
    return found


def _together(shown: Mapping[str, Shown], names: Iterable[str]) -> Shown:
    """All that these names stand for, each test once."""
    together = Shown()
    for test, one in shown.items():
        if any(stands_for(name, test) for name in names):
            together.tests += one.tests
            together.ended += one.ended
            together.on |= one.on
    return together


def _word(case: ElementTree.Element) -> str:
    tags = {child.tag for child in case}
    if tags & {"failure", "error"}:
        return "failed"
    return "skipped" if "skipped" in tags else "passed"


def _stacks(case: ElementTree.Element) -> set[str]:
    """Where it ran: its fleets' stacks, or the databases in its brackets, or that of a module which is for one."""
    stacks = {given.get("value", "") for given in case.iter("property") if given.get("name") == STACK}
    module, parameters = case.get("classname", ""), case.get("name", "").partition("[")[2]
    if not stacks:
        stacks = set(_STORES.findall(parameters)) or set(_STORES.findall(module))
    if "test_redis" in module:
        stacks.add("redis")
    return stacks


def _table(page: str, shown: Mapping[str, Shown]) -> str:
    versions = f"Celery {version('celery')}, kombu {version('kombu')}, Python {platform.python_version()}"
    lines = [
        f"Counted on {datetime.now(timezone.utc):%Y-%m-%d} with {versions}:\n\n",
        "| under | tests named | cases passed | skipped | on (broker-store, or store) |\n|---|---|---|---|---|\n",
    ]
    parts = _HEADING.split(page)
    for heading, text in zip(parts[1::2], parts[2::2], strict=True):
        if names := named_in(text):
            lines.append(_line(heading, _together(shown, names)))
    everything = _together(shown, ["test_*"])
    everything.on = {"all of these"}
    return "".join([*lines, _line("all tests", everything)])


def _line(heading: str, shown: Shown) -> str:
    on = ", ".join(sorted(shown.on)) or "no server"
    return f"| {heading} | {shown.tests} | {shown.ended['passed']} | {shown.ended['skipped']} | {on} |\n"


if __name__ == "__main__":
    sys.exit(main())
