"""Keys and canonical texts, for any value and any spelling."""

from __future__ import annotations

import inspect
import json
import math
from datetime import timezone
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kombu.utils.json import dumps, loads

from celery_guard.contract import Contract
from celery_guard.contract.canonical import canonical
from celery_guard.contract.key import identify
from celery_guard.errors import PayloadError

TEXTS = st.text(alphabet=st.characters(exclude_categories=()))
SCALARS = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | TEXTS
    | st.binary()
    | st.uuids()
    | st.dates()
    | st.datetimes(timezones=st.none() | st.just(timezone.utc) | st.timezones())
    | st.decimals(allow_nan=False, allow_infinity=False)
)
VALUES = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXTS, inner, max_size=4), max_leaves=12
)


def same(one: Any, other: Any) -> bool:
    """Equal, and of the same type, all the way down."""
    if type(one) is not type(other):
        return False
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(same(one[key], other[key]) for key in one)
    if isinstance(one, list):
        return len(one) == len(other) and all(map(same, one, other))
    if isinstance(one, Decimal):
        return one.compare(other) == 0 and one == other
    return bool(one == other)


def shuffled(value: Any) -> Any:
    """The same value, mappings written in the other order and lists as tuples."""
    if isinstance(value, dict):
        return {key: shuffled(value[key]) for key in reversed(list(value))}
    return tuple(map(shuffled, value)) if isinstance(value, list) else value


@given(VALUES)
def test_dup_4_every_value_has_one_text_however_it_is_written(value: Any) -> None:
    text = canonical(value)
    assert text == canonical(shuffled(value))
    assert text.isascii()
    json.loads(text)


@given(VALUES, VALUES)
def test_dup_4_two_values_have_one_text_only_if_they_are_the_same(one: Any, other: Any) -> None:
    if canonical(one) == canonical(other):
        assert same(one, other)


@given(st.lists(SCALARS, min_size=2, max_size=2))
def test_dup_4_two_values_that_are_the_same_have_one_text(pair: list[Any]) -> None:
    one, other = pair
    zone = getattr(one, "tzinfo", None), getattr(other, "tzinfo", None)
    if same(one, other) and zone in ((None, None), (timezone.utc, timezone.utc)):
        assert canonical(one) == canonical(other)


@given(VALUES)
def test_dup_4_publisher_and_worker_compute_the_same_text(value: Any) -> None:
    try:
        came_back = loads(dumps(value))
    except (ValueError, TypeError):
        return  # a mapping that looks like one of kombu's own; the codec check refuses it
    if came_back == value:
        assert canonical(came_back) == canonical(value)


NAMES = ("a", "b", "c", "d")


def body(a: Any, b: Any = 1, *, c: Any = "x", d: Any = None) -> None: ...


@st.composite
def spellings(draw: st.DrawFn) -> tuple[tuple[tuple[Any, ...], dict[str, Any]], tuple[tuple[Any, ...], dict[str, Any]]]:
    """Two ways to write one call: positional or by name, with or without defaults, in any order."""
    # None names no call, where the argument has to be given
    values = {"a": draw(VALUES.filter(lambda value: value is not None))}
    values |= {name: draw(VALUES) for name in draw(st.sets(st.sampled_from(NAMES[1:])))}
    full = {"b": 1, "c": "x", "d": None, **values}
    by_name = [name for name in draw(st.permutations(list(full))) if name in values or draw(st.booleans())]
    positional = draw(st.integers(0, 2))
    first = tuple(full[name] for name in NAMES[:positional])
    rest = {name: full[name] for name in draw(st.permutations(by_name)) if name not in NAMES[:positional]}
    return (first, rest), ((), {name: shuffled(full[name]) for name in full})


@given(spellings())
def test_dup_4_every_spelling_of_a_call_has_one_identity(pair: Any) -> None:
    (args, kwargs), (other_args, other_kwargs) = pair
    signature = inspect.signature(body)
    for contract in (Contract(key=NAMES), Contract(key="a"), Contract(key="c", match=("b",))):
        one = identify(contract, "t", signature, args, kwargs)
        assert one == identify(contract, "t", signature, other_args, other_kwargs)
        assert one.key != one.fingerprint


@given(st.floats())
def test_only_finite_numbers_have_a_text(value: float) -> None:
    if math.isfinite(value):
        assert float(canonical(value)) == value
    else:
        with pytest.raises(PayloadError):
            canonical(value)
