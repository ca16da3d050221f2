"""How long a server asks to be left alone."""

from __future__ import annotations

from datetime import timedelta

import pytest

from celery_guard.contract.failure_class import Classified, FailureClass
from celery_guard.contract.http_status import LONGEST_HINT, by_answer, by_status, retry_after

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


@pytest.mark.parametrize(
    ("status", "expected"),
    [
        *((status, FailureClass.TRANSIENT) for status in (408, 425, 500, 502, 503, 504, 507, 509, 520, 529, 599, 999)),
        *(
            (status, FailureClass.PERMANENT)
            for status in (300, 304, 400, 404, 407, 409, 410, 418, 423, 426, 428, 430, 451)
        ),
        *((status, FailureClass.PERMANENT) for status in (499, 501, 505, 506, 508, 510, 511)),
        (429, FailureClass.THROTTLED),
    ],
)
def test_a_status_passes_or_stays(status: int, expected: FailureClass) -> None:
    assert by_status(status, lambda name: None) == Classified(expected)


@pytest.mark.parametrize(("status", "counts"), [(399, False), (400, True), (403, True), (501, True), (503, True)])
def test_whoever_says_when_to_come_back_asks_for_fewer_calls(status: int, counts: bool) -> None:
    found = by_status(status, {"Retry-After": "7"}.get)
    assert found == (
        Classified(FailureClass.THROTTLED, timedelta(seconds=7)) if counts else Classified(FailureClass.PERMANENT)
    )


class Answer(Exception):
    def __init__(self, **attributes: object) -> None:
        self.__dict__.update(attributes)


def test_headers_are_found_in_either_case() -> None:
    for name in ("Retry-After", "retry-after"):
        found = by_answer(Answer(status=503, headers={name: "7"}))
        assert found is not None
        assert found.floor == timedelta(seconds=7)


@pytest.mark.parametrize("status", [None, "503", True, 0, 7, 99, 1000, 5030, 200, 101, 299])
def test_what_is_no_failing_status_says_nothing(status: object) -> None:
    assert by_answer(Answer(status=status)) is None


def test_headers_that_cannot_be_read_are_no_hint() -> None:
    class Broken:
        def get(self, name: str) -> str:
            raise RuntimeError

    found = by_answer(Answer(status=503, headers=Broken()))
    assert found is not None
    assert found.floor is None
