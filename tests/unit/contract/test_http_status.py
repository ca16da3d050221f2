"""How long a server asks to be left alone."""

from __future__ import annotations

from datetime import timedelta

import pytest

from celery_guard.contract.http_status import LONGEST_HINT, by_answer, retry_after

SENT = "Wed, 21 Oct 2015 07:28:00 GMT"


def hint(**headers: object) -> timedelta | None:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return retry_after(named.get)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("0", timedelta(0)),
        ("120", timedelta(minutes=2)),
        (" 7 ", timedelta(seconds=7)),
        (b"7", timedelta(seconds=7)),
        ("9" * 5000, LONGEST_HINT),
        ("86401", LONGEST_HINT),
        ("-5", None),
        ("1.5", None),
        ("soon", None),
        ("", None),
        ("٣", None),
        (None, None),
        (7, None),
        (["7"], None),
    ],
)
def test_seconds_are_read_and_nonsense_is_no_hint(value: object, expected: timedelta | None) -> None:
    assert hint(Retry_After=value) == expected


@pytest.mark.parametrize(
    ("until", "expected"),
    [
        ("Wed, 21 Oct 2015 07:29:30 GMT", timedelta(seconds=90)),
        ("Wed, 21 Oct 2015 07:29:30 -0000", timedelta(seconds=90)),
        ("Wed, 21 Oct 2015 07:27:00 GMT", timedelta(0)),
        ("Wed, 21 Oct 2099 07:28:00 GMT", LONGEST_HINT),
        ("Wed, 99 Oct 2015 07:28:00 GMT", None),
    ],
)
def test_a_date_is_read_against_the_servers_own_clock(until: str, expected: timedelta | None) -> None:
    assert hint(Retry_After=until, Date=SENT) == expected


def test_a_date_that_cannot_be_compared_is_no_hint() -> None:
    assert hint(Retry_After="Wed, 21 Oct 2015 07:29:30 GMT") is None
    assert hint(Retry_After="Wed, 21 Oct 2015 07:29:30 GMT", Date="yesterday") is None


class Answer(Exception):
    def __init__(self, **attributes: object) -> None:
        self.__dict__.update(attributes)


def test_headers_are_found_in_either_case() -> None:
    for name in ("Retry-After", "retry-after"):
        found = by_answer(Answer(status=503, headers={name: "7"}))
        assert found is not None
        assert found.floor == timedelta(seconds=7)


@pytest.mark.parametrize("status", [None, "503", True, 0, 7, 5030, 200, 101])
def test_what_is_no_failing_status_says_nothing(status: object) -> None:
    assert by_answer(Answer(status=status)) is None


def test_headers_that_cannot_be_read_are_no_hint() -> None:
    class Broken:
        def get(self, name: str) -> str:
            raise RuntimeError

    found = by_answer(Answer(status=503, headers=Broken()))
    assert found is not None
    assert found.floor is None
