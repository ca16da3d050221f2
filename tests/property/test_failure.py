"""Describing a failure, for any exception."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from celery_guard.contract.classify import FailureClass, classify
from celery_guard.contract.retry import Retry
from celery_guard.job.failure import MESSAGE_LIMIT, TRACEBACK_LIMIT, describe
from celery_guard.job.text import clean, cut, cut_middle

TEXTS = st.text(alphabet=st.characters(exclude_categories=()))
VALUES = st.recursive(
    st.none() | st.integers() | st.floats() | TEXTS | st.binary() | st.decimals(),
    lambda inner: st.lists(inner) | st.tuples(inner, inner) | st.dictionaries(TEXTS, inner) | st.sets(st.integers()),
    max_leaves=10,
)


class Raising:
    def __init__(self, what: BaseException) -> None:
        self.what = what

    def __get__(self, instance: object, owner: type) -> object:
        if instance is None:
            return self
        raise self.what


@st.composite
def exceptions(draw: st.DrawFn) -> BaseException:
    parent = draw(
        st.sampled_from([Exception, BaseException, KeyError, ValueError, OSError, ConnectionError, SystemExit])
    )
    hostile: dict[str, Any] = {}
    if draw(st.booleans()):
        what = draw(st.sampled_from([RuntimeError("x"), SystemExit(), RecursionError()]))
        hostile["__str__"] = lambda self: (_ for _ in ()).throw(what)
    for name in draw(st.sets(st.sampled_from(["__cause__", "__notes__", "exceptions", "response", "errno", "args"]))):
        hostile[name] = draw(st.builds(Raising, st.just(ValueError("y"))) | VALUES)
    kind: Any = type(draw(st.sampled_from(["E", "É" * 300])), (parent,), hostile)
    return kind(*draw(st.lists(VALUES, max_size=3)))  # type: ignore[no-any-return]


@st.composite
def chains(draw: st.DrawFn) -> BaseException:
    links = draw(st.lists(exceptions(), min_size=1, max_size=12))
    for outer, inner in pairwise(links):
        try:
            raise outer from inner
        except BaseException:  # noqa: BLE001, S110 - raised for its traceback
            pass
    return links[0]


@given(chains(), TEXTS)
def test_stat_2_describing_never_raises_and_is_always_bounded(error: BaseException, worker: str) -> None:
    failure = describe(error, failure_class="unknown", task="t", worker=worker, fence=1, attempt=1)
    assert len(failure.message.encode()) <= MESSAGE_LIMIT
    assert len(failure.traceback.encode()) <= TRACEBACK_LIMIT
    for text in (failure.type_name, failure.message, failure.traceback, failure.worker, failure.cause):
        assert "\x00" not in text
        assert len(text.encode()) <= TRACEBACK_LIMIT
    again = describe(error, failure_class="unknown", task="t", worker=worker, fence=2, attempt=2)
    assert (failure.cause, failure.message) == (again.cause, again.message)


@given(chains())
def test_classifying_never_raises(error: BaseException) -> None:
    found = classify(error, Retry(max_attempts=2, on=(ValueError,), never=("OSError",), throttled=("a.B",)))
    assert found.failure_class in FailureClass


@given(TEXTS, st.integers(min_value=80, max_value=200))
def test_a_cut_keeps_to_its_limit_and_between_characters(text: str, limit: int) -> None:
    text = clean(text)
    for short, was_cut in (cut(text, limit), cut_middle(text, limit)):
        assert len(short.encode()) <= limit
        assert was_cut is (len(text.encode()) > limit)
        assert was_cut or short == text
