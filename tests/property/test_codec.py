"""Whether a payload comes back as it went, for any payload."""

from __future__ import annotations

import json
from copy import deepcopy
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from kombu.utils.json import dumps, loads

from celery_guard.contract.codec import first_difference, first_unencodable

SCALARS = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text()
    | st.uuids()
)
JSON = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=5) | st.dictionaries(st.text(), inner, max_size=5), max_leaves=20
)
ANY_KEY = st.recursive(
    SCALARS,
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.text() | st.integers() | st.booleans() | st.none(), inner, max_size=4)
    ),
    max_leaves=12,
)


def equal(one: Any, other: Any) -> bool:
    """Equal, and of the same types, all the way down: written again, so that the two can disagree."""
    if type(one) is not type(other):
        return False
    if isinstance(one, list):
        return len(one) == len(other) and all(equal(a, b) for a, b in zip(one, other, strict=True))
    if isinstance(one, dict):
        pairs = sorted(one.items(), key=repr), sorted(other.items(), key=repr)
        return len(one) == len(other) and all(equal(list(a), list(b)) for a, b in zip(*pairs, strict=True))
    return bool(one == other)


@given(JSON)
def test_pay_4_a_json_value_is_no_difference_from_itself(value: Any) -> None:
    assert first_difference(value, deepcopy(value)) is None


@given(ANY_KEY)
def test_pay_4_a_difference_is_found_exactly_where_there_is_one(value: Any) -> None:
    came_back = loads(dumps(value))
    assert (first_difference(value, came_back) is None) == equal(value, came_back)


@given(ANY_KEY, ANY_KEY)
def test_pay_4_two_values_are_told_apart(one: Any, other: Any) -> None:
    assert (first_difference(one, other) is None) == equal(one, other)


STRANGE = st.recursive(
    SCALARS | st.builds(object),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
)


def encodes(value: object) -> bool:
    try:
        json.dumps(value, default=str if type(value).__name__ == "UUID" else None)
    except TypeError:
        return False
    return True


@given(STRANGE)
def test_pay_4_an_unencodable_element_is_found_exactly_where_there_is_one(value: Any) -> None:
    assert (first_unencodable(value, encodes) is None) == encodes(value)
