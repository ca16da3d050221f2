"""Instants, durations and strangers' texts as a terminal shows them."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone

import pytest

from celery_guard.job.row import Job
from celery_guard.job.state import Kind, Reason, State
from celery_guard.operate.cli.words import ago, one_line, record, safe, span, when

NOW = datetime(2026, 3, 1, 12, 0, 0, tzinfo=timezone.utc)


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [
        (0, "0.0s"),
        (0.04, "0.0s"),
        (9.94, "9.9s"),
        (9.95, "10s"),
        (59.6, "1m"),
        (60, "1m"),
        (192, "3m 12s"),
        (3600, "1h"),
        (3605, "1h"),
        (86400 * 2 + 3600 * 4 + 59, "2d 4h"),
        (86400 * 400, "400d"),
        (-192, "3m 12s"),
    ],
)
def test_a_duration_is_shown_in_its_two_largest_units(seconds: float, shown: str) -> None:
    assert span(timedelta(seconds=seconds)) == shown


def test_an_instant_is_shown_with_its_distance() -> None:
    assert ago(NOW - timedelta(minutes=3), NOW) == "3m ago"
    assert ago(NOW + timedelta(minutes=3), NOW) == "in 3m"
    assert (ago(None), when(None)) == ("", "")


def test_an_instant_is_shown_in_the_local_zone() -> None:
    shown = when(NOW - timedelta(hours=1), NOW)
    clock, zone, distance = shown[:19], shown[20:25], shown[26:]
    assert distance == "(1h ago)"
    assert datetime.strptime(f"{clock} {zone}", "%Y-%m-%d %H:%M:%S %z") == NOW - timedelta(hours=1)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain é 🎈", "plain é 🎈"),
        ("\x1b[31mred", "\\x1b[31mred"),
        ("\x9b31m", "\\x9b31m"),
        ("\x00\x07\x7f\r", "\\x00\\x07\\x7f\\r"),
        ("user\u202eexe.txt", "user\\u202eexe.txt"),
        ("\ud800", "\\ud800"),
    ],
)
def test_a_text_cannot_steer_the_terminal(text: str, shown: str) -> None:
    assert safe(text) == one_line(text) == shown


def test_lines_stay_lines_only_where_there_is_room_for_them() -> None:
    assert safe("a\n\tb") == "a\n\tb"
    assert one_line("a\n\tb") == "a\\n\\tb"


def test_a_record_is_plain_json() -> None:
    job = Job(
        id="1", task="t", queue="q", kind=Kind.RUN, state=State.DEAD, reason=Reason.FAILED, created=NOW
    )  # fmt: skip
    values = record(job, leave_out=("failures",))
    assert (values["state"], values["reason"], values["created"]) == ("dead", "failed", "2026-03-01T12:00:00+00:00")
    assert "failures" not in values
    assert record([timedelta(seconds=90)]) == [90.0]
