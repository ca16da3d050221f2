"""What may be said of how far a job is, and what is read of it."""

from __future__ import annotations

import math
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from decimal import Decimal
from typing import Any

import pytest

from celery_guard import Progress
from celery_guard.job.progress import LONGEST_NOTE, MOST, progress_from, progress_text

STARTED = datetime(2026, 3, 2, 16, 30, tzinfo=timezone.utc)
HERE = Progress(412, 1000, "", STARTED)


@pytest.mark.parametrize(
    ("done", "total", "note"),
    [
        (0, None, ""), (0, 0, ""), (0.5, 1, "half"), (7, 7, "ä\n\x1b[31m\N{SNOWMAN}"), (MOST, MOST, "\N{SNOWMAN}" * LONGEST_NOTE),
    ],
)  # fmt: skip
def test_what_was_said_is_read_again_with_when_it_was_said(done: float, total: float | None, note: str) -> None:
    text = progress_text(done, total, note, timedelta(minutes=2, milliseconds=3))
    assert progress_from(text, STARTED) == Progress(done, total, note, STARTED + timedelta(minutes=2, milliseconds=3))
    # so short and plain that any store takes it, in one statement with hundreds of others
    assert text.isascii()
    assert "\x00" not in text
    assert len(text) < 12 * LONGEST_NOTE + 200


@pytest.mark.parametrize(
    ("given", "error", "says"),
    [
        ({"done": -1}, ValueError, "done is -1"),
        ({"done": -0.5, "total": 1}, ValueError, "done is -0.5"),
        ({"done": math.nan}, ValueError, "done is nan"),
        ({"done": math.inf}, ValueError, "done is inf"),
        ({"done": 0, "total": math.nan}, ValueError, "total is nan"),
        ({"done": 0, "total": -1}, ValueError, "total is -1"),
        ({"done": 11, "total": 10}, ValueError, "11 of 10 are done"),
        ({"done": MOST + 1}, ValueError, "done is an integer beyond"),
        ({"done": 10**5000}, ValueError, "done is an integer beyond"),
        ({"done": True}, TypeError, "done is a bool"),
        ({"done": "7"}, TypeError, "done is a str"),
        ({"done": None}, TypeError, "done is a NoneType"),
        ({"done": 1, "total": Decimal(2)}, TypeError, "total is a Decimal"),
        ({"done": 1, "note": b"page 7"}, TypeError, "note is a bytes"),
        ({"done": 1, "note": None}, TypeError, "note is a NoneType"),
        ({"done": 1, "note": "x" * (LONGEST_NOTE + 1)}, ValueError, "the note has 201 characters, and may have 200"),
    ],
)  # fmt: skip
def test_what_is_no_progress_is_refused_with_what_was_found_and_what_to_do(
    given: dict[str, Any], error: type[Exception], says: str
) -> None:
    with pytest.raises(error, match=rf"^progress: .*{says}.* To repair: |^progress: {says}.* To repair: "):
        progress_text(**{"total": None, "note": "", "after": timedelta(0), **given})


@pytest.mark.parametrize("note", ["a\x00b", "a\ud800b"])
def test_characters_that_databases_and_utf_8_refuse_are_replaced(note: str) -> None:
    said = progress_from(progress_text(1, None, note, timedelta(0)), STARTED)
    assert said == Progress(1, None, "a\ufffdb", STARTED)


@pytest.mark.parametrize(
    "text",
    [
        None, "", "x", "null", "[]", "7", "{}", '{"done": 1}', '{"done": "1", "after": 0}', '{"done": NaN, "after": 0}',
        '{"done": 2, "total": 1, "after": 0}', '{"done": 1, "after": "0"}', '{"done": 1, "after": 1e300}',
        '{"done": 1, "after": 0, "note": 7}',
    ],
)  # fmt: skip
def test_what_somebody_else_has_written_is_no_progress_and_hides_no_job(text: str | None) -> None:
    assert progress_from(text, STARTED) is None


def test_what_a_newer_version_says_besides_is_passed_over() -> None:
    assert progress_from('{"done": 412, "total": 1000, "after": 0, "unit": "rows"}', STARTED) == HERE


@pytest.mark.parametrize(
    ("progress", "shown", "fraction"),
    [
        (HERE, "412 of 1000 (41 %)", 0.412),
        (replace(HERE, note="page 7"), "412 of 1000 (41 %): page 7", 0.412),
        (replace(HERE, done=999), "999 of 1000 (99 %)", 0.999),
        (replace(HERE, done=1000), "1000 of 1000 (100 %)", 1.0),
        (replace(HERE, done=0.1 + 0.2, total=1.0), "0.3 of 1 (30 %)", 0.1 + 0.2),
        (replace(HERE, done=0, total=0), "0 of 0", None),
        (replace(HERE, total=None), "412", None),
    ],
)  # fmt: skip
def test_it_is_shown_in_few_words_and_never_as_more_than_it_is(
    progress: Progress, shown: str, fraction: float | None
) -> None:
    assert (str(progress), progress.fraction) == (shown, fraction)
