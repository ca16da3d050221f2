"""Short cuts of many calls: each says what the long way says, or nothing."""

from __future__ import annotations

import inspect
import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from kombu.utils import json as kombu_json

from celery_guard.contract.codec import first_difference
from celery_guard.contract.key import _bound_simply
from celery_guard.integrations.celery.kinds import _comes_back

TEXTS = st.text(st.characters(exclude_categories=())) | st.sampled_from(
    ["__type__", "__value__", "\ud83d\ude00", "uuid"]
)
SCALARS = st.none() | st.booleans() | st.integers() | st.floats() | TEXTS | st.binary() | st.decimals()
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner) | st.tuples(inner, inner) | st.dictionaries(TEXTS | st.integers(), inner),
    max_leaves=20,
)


@given(VALUES)
def test_what_is_said_to_come_back_does(value: Any) -> None:
    if _comes_back(value):
        assert first_difference(value, kombu_json.loads(kombu_json.dumps(value).encode())) is None
        assert json.loads(json.dumps(value)) == kombu_json.loads(kombu_json.dumps(value))


def plain(a: Any, b: Any, c: Any = 3) -> None: ...
def by_name(a: Any, b: Any = 2, *, c: Any, d: Any = 4) -> None: ...
def first(a: Any, /, b: Any = 2) -> None: ...
def many(a: Any, *b: Any, c: Any = 3) -> None: ...
def any_name(a: Any, **b: Any) -> None: ...
def nothing() -> None: ...


@given(
    st.sampled_from([plain, by_name, first, many, any_name, nothing]),
    st.lists(st.integers(), max_size=4),
    st.dictionaries(st.sampled_from("abcde"), st.integers()),
)
def test_a_call_that_is_bound_simply_is_bound_alike(body: Any, args: list[int], kwargs: dict[str, int]) -> None:
    signature = inspect.signature(body)
    simply = _bound_simply(signature, args, kwargs)
    try:
        bound = signature.bind(*args, **kwargs)
    except TypeError:
        assert simply is None
        return
    bound.apply_defaults()
    if simply is None:
        assert body in (first, many, any_name)
    else:
        assert list(simply.items()) == list(bound.arguments.items())
