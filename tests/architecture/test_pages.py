"""The pages: every link between them leads somewhere, and every page can be reached from the index."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from celery_guard.errors import GuardError
from celery_guard.flow.admin import blocker
from celery_guard.flow.admin.blocker import CODES
from celery_guard.job.state import Reason

ROOT = Path(__file__).parents[2]
LINK = re.compile(r"(?<!!)\[[^\]]*\]\(([^)\s]+)\)")
HEADING = re.compile(r"^#+\s+(.*)$", re.MULTILINE)
FENCED = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)


def pages() -> list[Path]:
    return [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "changelog.d").glob("README.md")]


def prose(page: Path) -> str:
    return FENCED.sub("", page.read_text(encoding="utf-8"))


def links(page: Path) -> Iterator[str]:
    return (target for target in LINK.findall(prose(page)) if not re.match(r"[a-z]+:", target))


def anchors(page: Path) -> set[str]:
    """The names that a forge gives to headings: lower case, punctuation gone, spaces as dashes."""
    words = (re.sub(r"[^\w\- ]", "", heading.lower()) for heading in HEADING.findall(prose(page)))
    return {word.strip().replace(" ", "-") for word in words}


def test_every_link_leads_somewhere() -> None:
    dead = []
    for page in pages():
        for link in links(page):
            path, _, anchor = link.partition("#")
            target = (page.parent / path).resolve() if path else page
            if not target.exists() or (anchor and anchor not in anchors(target)):
                dead.append(f"{page.relative_to(ROOT)}: {link}")
    assert not dead, dead


def test_every_page_of_the_docs_can_be_reached_from_the_index() -> None:
    index = (ROOT / "docs" / "README.md").resolve()
    reached: set[Path] = set()
    waiting = [index]
    while waiting:
        page = waiting.pop()
        if page in reached or page.suffix != ".md" or not page.exists():
            continue
        reached.add(page)
        waiting += [(page.parent / link.partition("#")[0]).resolve() for link in links(page) if link.partition("#")[0]]
    lost = {page.resolve() for page in (ROOT / "docs").rglob("*.md")} - reached
    assert not lost, sorted(str(page.relative_to(ROOT)) for page in lost)


def test_every_error_code_has_its_place_in_the_runbook() -> None:
    tree = [GuardError]
    for error in tree:
        tree += error.__subclasses__()
    codes = {error.code for error in tree if error.__module__ == "celery_guard.errors"} - {"GUARD-000"}
    told = {anchor.upper() for page in (ROOT / "docs" / "runbook").glob("*.md") for anchor in anchors(page)}
    assert codes <= told, codes - told
    assert "GUARD-101" in codes


#: Why a job waits, and why one that has succeeded has no value: no dead letter says so.
NO_END = {
    Reason.NEW, Reason.RETRY, Reason.LOST, Reason.REPLAY, Reason.REPLACED, Reason.HANDED_OVER,
    Reason.HELD_LIMIT, Reason.HELD_BRAKE, Reason.IGNORED,
}  # fmt: skip


def test_every_reason_of_a_dead_letter_has_its_place_in_the_runbook() -> None:
    told = anchors(ROOT / "docs" / "runbook" / "dead-letters.md")
    assert {reason.value for reason in Reason} - {reason.value for reason in NO_END} <= told


def test_every_code_of_explain_has_its_place_in_the_runbook_and_in_the_table() -> None:
    told = {anchor.upper() for anchor in anchors(ROOT / "docs" / "runbook" / "explain.md")}
    assert {*CODES} == {anchor for anchor in told if anchor.startswith("EXPLAIN-")}
    drawn = blocker.__doc__ or ""
    assert all(f"{code.removeprefix('EXPLAIN-')}    {title}" in drawn for code, title in CODES.items())
