"""Whether a payload comes back as it went."""

from __future__ import annotations

import json
from collections import OrderedDict, namedtuple
from datetime import date, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any
from uuid import UUID
from zoneinfo import ZoneInfo

import pytest
from kombu.utils.json import dumps, loads

from celery_guard.contract.canonical import DEEPEST
from celery_guard.contract.codec import first_difference, first_unencodable, wire_size

NOON = datetime(2024, 5, 1, 12, tzinfo=timezone.utc)


def there_and_back(value: Any) -> Any:
    return loads(dumps(value))


def encodes(value: object) -> bool:
    try:
        dumps(value)
    except (TypeError, ValueError, RecursionError):
        return False
    return True


@pytest.mark.parametrize(
    "value",
    [
        None,
        True,
        0,
        10**30,
        1.5,
        -0.0,
        "é\x00\ud800",
        b"a",
        b"\xff",
        [],
        {},
        {"a": {"b": [1, "2", None]}},
        NOON,
        NOON.replace(tzinfo=None),
        NOON.astimezone(ZoneInfo("Europe/Berlin")),
        date(2024, 5, 1),
        NOON.time(),
        Decimal("1.10"),
        UUID(int=7),
        (1, (2, [3])),
    ],
)
def test_pay_4_what_comes_back_as_it_went_is_no_difference(value: Any) -> None:
    assert first_difference([value], there_and_back([value])) is None
    assert first_difference({"a": value}, there_and_back({"a": value})) is None


def test_the_hour_that_a_clock_change_repeats_comes_back() -> None:
    berlin = ZoneInfo("Europe/Berlin")
    for fold in (0, 1):
        moment = datetime(2024, 10, 27, 2, 30, fold=fold, tzinfo=berlin)
        assert first_difference(moment, there_and_back(moment)) is None


Point = namedtuple("Point", "x y")


class Text(str):
    __slots__ = ()


class Number(int):
    pass


class Day(date):
    pass


@pytest.mark.parametrize(
    ("value", "path", "found", "why"),
    [
        ({1: "a"}, "args[0][1]", "int", "key"),
        ({None: "a"}, "args[0][None]", "None", "key"),
        ({True: "a"}, "args[0][True]", "bool", "key"),
        ({"a": 1, "b": {2: 3}}, "args[0]['b'][2]", "int", "key"),
        (Point(1, 2), "args[0]", "Point", "list"),
        (OrderedDict(a=1), "args[0]", "OrderedDict", "dict"),
        (Text("a"), "args[0]", "Text", "str"),
        (Number(1), "args[0]", "Number", "int"),
        (Day(2024, 5, 1), "args[0]", "Day", "date"),
        (float("nan"), "args[0]", "float", "finite"),
        (float("inf"), "args[0]", "float", "finite"),
        (Decimal("NaN"), "args[0]", "Decimal", "finite"),
        (Decimal("sNaN"), "args[0]", "Decimal", "finite"),
        ({"a": [1, {"b": (1, Text("x"))}]}, "args[0]['a'][1]['b'][1]", "Text", "str"),
        ("\ud83d\ude00", "args[0]", "str", "another value"),
        ({"__type__": "bytes", "__value__": "x"}, "args[0]", "dict", "bytes"),
    ],
)
def test_pay_4_what_comes_back_otherwise_is_named_with_its_place(value: Any, path: str, found: str, why: str) -> None:
    difference = first_difference((value,), there_and_back((value,)), "args")
    assert difference is not None
    assert difference.path == path
    assert found in difference.found
    assert why in difference.why
    assert str(difference) == f"{path}: {difference.why}"


@pytest.mark.parametrize(
    ("sent", "came_back", "why"),
    [
        (1, 1.0, "float"),
        (1, True, "bool"),
        ("a", "b", "another value"),
        ([1, 2], [1], "1 elements instead of 2"),
        ([], None, "None"),
        ({"a": 1}, {}, "does not come back"),
        ({}, {"a": 1}, "more keys"),
        ({1: 1}, {True: 1}, "another type"),
        ([1], (1,), "tuple"),
        ({}, [], "list"),
        (NOON, NOON + timedelta(hours=1), "another value"),
        (NOON, NOON.astimezone(ZoneInfo("Asia/Tokyo")), "another value"),
        (NOON, NOON.replace(tzinfo=None), "another value"),
        (Decimal(1), Decimal(2), "another value"),
    ],
)
def test_other_codecs_are_held_to_the_same(sent: Any, came_back: Any, why: str) -> None:
    difference = first_difference(sent, came_back)
    assert difference is not None
    assert difference.path.startswith("the value")
    assert why in difference.why


def test_a_key_is_named_as_a_key() -> None:
    assert str(first_difference({1: 2}, {"1": 2}, "kwargs")) == (
        "kwargs[1]: the key, a value of type int, does not come back; keys have to be texts"
    )
    assert str(first_difference({1: 2}, {True: 2}, "kwargs")) == (
        "kwargs[1]: the key, a value of type int, comes back as another type; keys have to be texts"
    )
    assert str(first_difference(1, "1", "x")) == "x: a value of type int comes back as a value of type str"


def test_a_codec_that_keeps_keys_may_have_any() -> None:
    assert first_difference({1: {None: 2}}, {1: {None: 2}}) is None


def test_the_first_difference_in_reading_order_is_named() -> None:
    sent = {"a": [1, [Text("x")], Text("y")], "b": Text("z")}
    difference = first_difference(sent, there_and_back(sent), "kwargs")
    assert difference is not None
    assert difference.path == "kwargs['a'][1][0]"


class Signature(dict[str, Any]):
    """What Celery's signatures look like from outside."""


class Canvas(Signature):
    pass


def test_a_signature_of_celery_comes_back_as_a_plain_mapping() -> None:
    inner = Canvas(task="a", args=(1,), subtask_type=None)
    chain = Signature(task="celery.chain", kwargs={"tasks": [inner]}, subtask_type="chain")
    assert first_difference((chain,), there_and_back((chain,))) is None
    assert first_difference((Signature(),), ({},)) is None


def test_a_signature_is_looked_into() -> None:
    sent = Signature(task="a", kwargs={"when": Text("x")}, subtask_type=None)
    difference = first_difference([sent], there_and_back([sent]), "args")
    assert difference is not None
    assert difference.path == "args[0]['kwargs']['when']"


def test_a_difference_does_not_print_the_value() -> None:
    difference = first_difference(["4111111111111111"], ["x"])
    assert "4111" not in str(difference)


def nested(depth: int) -> Any:
    value: Any = 1
    for _ in range(depth):
        value = [value]
    return value


def test_nesting_ends_somewhere() -> None:
    assert first_difference(nested(DEEPEST), nested(DEEPEST), "args") is None
    difference = first_difference(nested(DEEPEST + 1), nested(DEEPEST + 1), "args")
    assert difference is not None
    assert "deeper" in difference.why
    assert difference.path.startswith("args[0][0]")
    assert len(difference.path) < 300
    deepest = first_difference(nested(100_000), nested(100_000), "args")
    assert deepest is not None
    assert "deeper" in deepest.why


def test_a_circle_is_too_deep() -> None:
    circle: dict[str, Any] = {}
    circle["self"] = circle
    difference = first_difference(circle, circle, "kwargs")
    assert difference is not None
    assert "deeper" in difference.why


def test_a_long_key_is_shortened_in_a_path() -> None:
    difference = first_difference({"k" * 5000: 1}, {}, "kwargs")
    assert difference is not None
    assert len(difference.path) < 100


# -- what cannot be encoded at all ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "path"),
    [
        (({1, 2},), "args[0]"),
        (({"a": [1, {"b": object()}]},), "args[0]['a'][1]['b']"),
        (({"a": 1, (1, 2): 3},), "args[0][a tuple]"),
        ((1, [2, {"x": 1j}], {3}), "args[1][1]['x']"),
        (object(), "args"),
    ],
)
def test_pay_4_the_smallest_element_that_cannot_be_encoded_is_named(value: Any, path: str) -> None:
    assert first_unencodable(value, encodes, "args") == path


def test_what_can_be_encoded_has_no_such_element() -> None:
    assert first_unencodable({"a": [1, (2, None)]}, encodes) is None


def test_a_circle_cannot_be_encoded() -> None:
    circle: list[Any] = []
    circle.append(circle)
    path = first_unencodable(circle, encodes, "args")
    assert path is not None
    assert path.startswith("args[0]")
    assert len(path) < 300


def test_a_whole_that_fails_though_its_parts_do_not_is_named_itself() -> None:
    def at_most_two(value: object) -> bool:
        return len(json.dumps(value)) <= 6

    assert first_unencodable({"a": [1, 2, 3, 4]}, at_most_two, "kwargs") == "kwargs['a']"


# -- size -------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("length", "grown"), [(0, 0), (1, 4), (2, 4), (3, 4), (4, 8), (300, 400)])
def test_pay_3_a_body_grows_as_base64_does(length: int, grown: int) -> None:
    assert wire_size(b"x" * length, "", "") == grown


def test_pay_3_texts_count_as_bytes() -> None:
    assert wire_size(b"", "é", "€") == 5
    assert wire_size(b"", "\ud800", "") == 3
