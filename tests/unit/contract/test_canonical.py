"""One text for one value, and another for another."""

from __future__ import annotations

import enum
from datetime import date, datetime, time, timedelta, timezone
from decimal import Decimal
from typing import Any
from uuid import UUID
from zoneinfo import ZoneInfo

import pytest

from celery_guard.contract.canonical import DEEPEST, canonical
from celery_guard.errors import PayloadError

NOON = datetime(2024, 5, 1, 12, tzinfo=timezone.utc)


class Text(str):
    __slots__ = ()


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ({"a": 1, "b": 2}, {"b": 2, "a": 1}),
        ((1, (2, 3)), [1, [2, 3]]),
        (Decimal("1.10"), Decimal("1.1")),
        (Decimal("100"), Decimal("1E+2")),
        (Decimal("-0.00"), Decimal(0)),
        (0.0, -0.0),
        (NOON, NOON.astimezone(ZoneInfo("Asia/Tokyo"))),
        (Text("a"), "a"),
        (UUID(int=7), UUID("00000000-0000-0000-0000-000000000007")),
    ],
)
def test_dup_4_equal_values_have_one_text(one: Any, other: Any) -> None:
    assert canonical(one) == canonical(other)


DIFFERENT: list[Any] = [
    None,
    True,
    False,
    1,
    0,
    1.0,
    0.5,
    "1",
    "",
    "true",
    "null",
    10**400,
    -(10**400),
    hex(10**400),
    Decimal(0),
    Decimal(1),
    Decimal("0.1"),
    Decimal("1E+5000"),
    b"1",
    b"",
    [],
    {},
    [1],
    [[1]],
    [1, 2],
    ["1"],
    {"1": 1},
    {1: 1},
    {True: 1},
    {None: 1},
    {"map": []},
    {"decimal": "1e0"},
    {"text": "00"},
    ["map", []],
    "\u00e9",
    "e\u0301",
    "\ud83d\ude00".encode("utf-16", "surrogatepass").decode("utf-16"),
    "\ud83d\ude00",
    "\ud83d",
    "a\x00",
    "a",
    NOON,
    NOON.replace(tzinfo=None),
    NOON + timedelta(microseconds=1),
    NOON.date(),
    NOON.time(),
    NOON.isoformat(),
    time(12, tzinfo=timezone.utc),
    UUID(int=1),
    UUID(int=1).hex,
    str(UUID(int=1)),
]


def test_dup_4_different_values_have_different_texts() -> None:
    texts = [canonical(value) for value in DIFFERENT]
    assert len(set(texts)) == len(DIFFERENT)


def test_a_text_is_ascii() -> None:
    assert all(canonical(value).isascii() for value in DIFFERENT)


def test_the_ends_of_the_calendar_have_a_text() -> None:
    west, east = timezone(timedelta(hours=-12)), timezone(timedelta(hours=12))
    assert canonical(datetime.max.replace(tzinfo=west)) != canonical(datetime.max.replace(tzinfo=east))
    assert canonical(datetime.min.replace(tzinfo=east)) != canonical(datetime.min.replace(tzinfo=west))
    assert canonical(date.max) != canonical(date.min)


class Colour(str, enum.Enum):
    RED = "red"


@pytest.mark.parametrize(
    ("value", "why"),
    [
        (float("nan"), "finite"),
        (float("inf"), "finite"),
        (Decimal("NaN"), "finite"),
        (Decimal("sNaN"), "finite"),
        (Decimal("-Infinity"), "finite"),
        (Colour.RED, "enum"),
        ({1, 2}, "set"),
        (object(), "object"),
        (bytearray(b"a"), "bytearray"),
        (1j, "complex"),
        (timedelta(1), "timedelta"),
    ],
)
def test_a_value_without_a_text_is_refused_with_its_place(value: Any, why: str) -> None:
    with pytest.raises(PayloadError) as caught:
        canonical({"order": [1, {"total": value}]}, "kwargs")
    assert caught.value.path == "kwargs['order'][1]['total']"
    assert why in str(caught.value)


def test_a_key_without_a_text_is_refused_with_its_place() -> None:
    with pytest.raises(PayloadError) as caught:
        canonical([{Colour.RED: 1}], "args")
    assert caught.value.path == "args[0][a Colour]"


def test_a_refusal_does_not_print_the_value() -> None:
    with pytest.raises(PayloadError) as caught:
        canonical({"card": {"4111111111111111"}}, "kwargs")
    assert "4111" not in str(caught.value)


def test_nesting_ends_somewhere() -> None:
    value: Any = 1
    for _ in range(DEEPEST):
        value = [value]
    assert canonical(value)
    with pytest.raises(PayloadError, match="deeper"):
        canonical([value])
    mapping: Any = 1
    for _ in range(DEEPEST):
        mapping = {"a": mapping}
    assert canonical(mapping)
    with pytest.raises(PayloadError, match="deeper"):
        canonical({"a": mapping})
    key: Any = 1
    for _ in range(DEEPEST):
        key = (key,)
    with pytest.raises(PayloadError, match="deeper"):
        canonical({key: 1})
    circle: list[Any] = []
    circle.append({"a": circle})
    with pytest.raises(PayloadError, match="deeper") as caught:
        canonical(circle)
    assert len(caught.value.path) < 300
