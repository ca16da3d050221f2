"""Tables for people, plain columns for pipes, JSON for programs."""

from __future__ import annotations

import io
import json
import re
import sys
from collections.abc import Callable, Sequence
from datetime import datetime, timezone

import pytest

from celery_guard.operate.cli.terminal import Column, Terminal

ANSI = re.compile(r"\x1b\[[0-9;]*m")

Row = tuple[str, str, str]
COLUMNS: tuple[Column[Row], ...] = (
    Column("id", lambda row: row[0], whole=True),
    Column("what", lambda row: row[1], color=lambda text: "red" if text == "charge" else ""),
    Column("tenant", lambda row: row[2], minor=True),
)
ROWS = [("7e1f", "charge", "acme"), ("8a", "a rather long description of a task", "")]


class Tty(io.StringIO):
    """A stdout that is a terminal."""

    encoding = "utf-8"

    def isatty(self) -> bool:
        return True


OnTerminal = Callable[..., str]


@pytest.fixture
def on_terminal(monkeypatch: pytest.MonkeyPatch) -> OnTerminal:
    """What a terminal of some width is sent for a listing."""
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.delenv("FORCE_COLOR", raising=False)

    def sent(rows: Sequence[Row], width: int = 100, color: bool = True) -> str:
        monkeypatch.setenv("COLUMNS", str(width))
        with monkeypatch.context() as patch:
            tty = Tty()
            patch.setattr(sys, "stdout", tty)
            Terminal(color=color).listing(rows, COLUMNS, "nothing")
        return tty.getvalue()

    return sent


def test_into_a_pipe_go_plain_aligned_columns(capsys: pytest.CaptureFixture[str]) -> None:
    Terminal().listing(ROWS, COLUMNS, "nothing")
    assert capsys.readouterr().out.splitlines() == [
        "ID    WHAT                                 TENANT",
        "7e1f  charge                               acme",
        "8a    a rather long description of a task",
    ]


def test_a_column_that_is_empty_in_all_rows_is_left_out(capsys: pytest.CaptureFixture[str]) -> None:
    Terminal().listing([("7e1f", "charge", "")], COLUMNS, "nothing")
    assert capsys.readouterr().out == "ID    WHAT\n7e1f  charge\n"


def test_where_there_is_nothing_it_is_said_beside_the_answer(capsys: pytest.CaptureFixture[str]) -> None:
    Terminal().listing([], COLUMNS, "no jobs")
    assert capsys.readouterr() == ("", "no jobs\n")


def test_a_text_of_many_lines_stays_in_its_row(capsys: pytest.CaptureFixture[str]) -> None:
    Terminal().listing([("1", "two\nlines\x1b[2J", "")], COLUMNS, "nothing")
    assert capsys.readouterr().out.splitlines() == ["ID  WHAT", "1   two\\nlines\\x1b[2J"]


def test_a_terminal_gets_a_table_with_a_bold_head(on_terminal: OnTerminal) -> None:
    sent = on_terminal(ROWS)
    assert "\x1b[1m" in sent
    assert [line.split()[0] for line in ANSI.sub("", sent).splitlines()] == ["id", "7e1f", "8a"]


@pytest.mark.parametrize("how", ["option", "variable"])
def test_colours_can_be_turned_off(on_terminal: OnTerminal, monkeypatch: pytest.MonkeyPatch, how: str) -> None:
    if how == "variable":
        monkeypatch.setenv("NO_COLOR", "1")
    color = re.compile(r"\x1b\[[0-9;]*3\dmcharge")
    sent = on_terminal(ROWS, color=how == "variable")
    assert "charge" in sent
    assert not color.search(sent)
    monkeypatch.delenv("NO_COLOR", raising=False)
    assert color.search(on_terminal(ROWS))


def test_a_narrow_terminal_goes_without_what_is_minor(on_terminal: OnTerminal) -> None:
    assert "tenant" in on_terminal(ROWS)
    shown = ANSI.sub("", on_terminal(ROWS, width=45))
    assert "tenant" not in shown
    assert "a rather long description of a task" in shown


def test_what_is_to_be_copied_is_whole_on_the_narrowest_terminal(on_terminal: OnTerminal) -> None:
    id = "0bd7739a-dccf-48aa-829c"
    assert id in ANSI.sub("", on_terminal([(id, "a rather long description", "")], width=30))


def test_where_rows_could_not_be_read_each_is_a_block_with_all_that_is_known(on_terminal: OnTerminal) -> None:
    rows = [("0bd7739a-dccf-48aa-829c", "a rather long description", "acme"), ("8a", "charge", "")]
    assert ANSI.sub("", on_terminal(rows, width=30)).splitlines() == [
        "id      0bd7739a-dccf-48aa-829c",
        "what    a rather long description",
        "tenant  acme",
        "",
        "id    8a",
        "what  charge",
    ]
    assert "0bd7739a-dccf-48aa-829c  a rather" in ANSI.sub("", on_terminal(rows, width=40))


def test_markup_in_a_strangers_text_is_text(on_terminal: OnTerminal) -> None:
    assert "[bold]x[/bold] [link=http://evil]" in on_terminal([("1", "[bold]x[/bold] [link=http://evil]", "")])


def test_json_is_one_document_that_any_encoding_can_carry(capsys: pytest.CaptureFixture[str]) -> None:
    Terminal(as_json=True).json([{"what": "é\x1b", "at": datetime(2026, 3, 1, tzinfo=timezone.utc)}])
    out = capsys.readouterr().out
    assert out.isascii()
    assert "\x1b" not in out
    assert json.loads(out)[0]["what"] == "é\x1b"


def test_what_the_terminal_cannot_write_is_written_out(monkeypatch: pytest.MonkeyPatch) -> None:
    raw = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(raw, encoding="ascii"))
    Terminal().say("é")
    sys.stdout.flush()
    assert raw.getvalue() == b"\\xe9\n"
