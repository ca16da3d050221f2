"""Nothing is decided by the wall clock of a process: it may be read in the places that are named here, and for what they say."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2] / "celery_guard"

#: Calls that read it.
READS = {
    "time.time", "time.time_ns", "time.localtime", "time.gmtime", "time.ctime", "time.strftime", "datetime.now", "datetime.utcnow",
    "datetime.today", "date.today", "dt.datetime.now", "datetime.datetime.now",
}  # fmt: skip

ALLOWED = {
    # for people, and to see that a publisher's clock is wrong
    "flow/enqueue.py": {"time.time"},
    "integrations/celery/kinds.py": {"time.time"},
    # when a snapshot was taken; whether it has expired is asked of the store's clock
    "contract/payload.py": {"datetime.now"},
    # whether a message without a row is older than rows are kept: days
    "integrations/celery/adopt.py": {"time.time"},
    # names of files, in the order in which they were written
    "integrations/celery/files.py": {"time.time_ns"},
    # when a span began
    "integrations/celery/lost.py": {"time.time_ns"},
    "integrations/celery/traced.py": {"time.time_ns"},
    "watch/spans.py": {"time.time_ns"},
    # what is said where the store cannot be asked; nothing is decided by it
    "flow/admin/facts.py": {"datetime.now"},
    # "3 minutes ago", on a terminal
    "operate/cli/words.py": {"datetime.now"},
}


def reads(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, (ast.Attribute, ast.Name)) and ast.unparse(node) in READS:
            yield ast.unparse(node)


def test_lock_3_no_decision_about_a_job_that_has_a_row_rests_on_the_clock_of_a_process() -> None:
    found = {
        str(path.relative_to(ROOT)): calls
        for path in ROOT.rglob("*.py")
        if (path.relative_to(ROOT).parts[0] != "testing") and (calls := set(reads(path)))
    }
    assert found == ALLOWED
