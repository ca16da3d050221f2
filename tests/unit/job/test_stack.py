"""Where an exception came from, told in bounded length."""

from __future__ import annotations

import sys
from types import FunctionType
from typing import Any

import pytest

from .told import fail, is_safe, raised, told

# -- tracebacks -----------------------------------------------------------------------------------------------------------


def test_stat_2_a_deep_recursion_is_told_by_its_ends() -> None:
    def down(n: int) -> None:
        down(n + 1)

    failure = raised(lambda: down(0))
    assert failure.type_name == "RecursionError"
    assert "frames left out" in failure.traceback
    assert failure.truncated
    assert failure.traceback.count("in down") < 40
    assert is_safe(failure)


def test_stat_2_a_chain_of_500_causes_is_told_by_its_ends() -> None:
    error: BaseException = ValueError("the root")
    for number in range(500):
        outer = RuntimeError(f"link {number}")
        outer.__cause__ = error
        error = outer
    failure = told(error)
    assert failure.traceback.startswith("ValueError: the root\n\nThe above exception was the direct cause of")
    assert failure.traceback.endswith("RuntimeError: link 499\n")
    assert "[… 493 exceptions of the chain left out …]" in failure.traceback
    assert failure.truncated
    assert is_safe(failure)


def test_a_chain_that_fits_is_told_whole() -> None:
    error: BaseException = ValueError("link 0")
    for number in range(1, 8):
        outer = RuntimeError(f"link {number}")
        outer.__cause__ = error
        error = outer
    failure = told(error)
    assert not failure.truncated
    assert all(f"link {number}\n" in failure.traceback for number in range(8))


def test_what_an_exception_was_raised_from_is_told_first() -> None:
    def body() -> None:
        try:
            fail("first")
        except ValueError as error:
            raise KeyError("second") from error

    traceback = raised(body).traceback
    assert (
        traceback.index("ValueError: first") < traceback.index("direct cause") < traceback.index("KeyError: 'second'")
    )


def test_what_was_being_handled_is_told_unless_it_was_hidden() -> None:
    def handled(hidden: bool) -> None:
        try:
            fail("first")
        except ValueError:
            if hidden:
                raise KeyError("second") from None
            raise KeyError("second")  # noqa: B904 - the point

    assert "During handling of the above exception" in raised(lambda: handled(False)).traceback
    hidden = raised(lambda: handled(True)).traceback
    assert "no such order" not in hidden
    assert "Traceback" not in hidden[1:]


def test_a_chain_in_a_circle_ends() -> None:
    one, other = ValueError("one"), ValueError("other")
    one.__cause__, other.__cause__ = other, one
    assert told(one).traceback.count("ValueError") == 2


def test_stat_2_a_large_traceback_keeps_head_and_tail() -> None:
    error: BaseException = ValueError("the root " + "x" * 5000)
    for number in range(7):
        outer: Any = RuntimeError(f"link {number} " + "é" * 5000)
        outer.__cause__ = error
        outer.add_note("n" * 5000) if sys.version_info >= (3, 11) else None
        error = outer
    failure = told(error)
    assert failure.truncated
    assert is_safe(failure)
    assert failure.traceback.startswith("ValueError: the root")


def test_a_traceback_over_its_limit_is_cut_in_the_middle(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("celery_guard.job.failure.TRACEBACK_LIMIT", 200)
    failure = raised(lambda: fail("é" * 90))
    assert failure.truncated
    assert failure.traceback.startswith("Traceback")
    assert failure.traceback.endswith("é\n")
    assert "bytes left out" in failure.traceback
    assert len(failure.traceback.encode()) <= 200


@pytest.mark.skipif(sys.version_info < (3, 11), reason="the language has no notes yet")
def test_notes_are_told() -> None:
    error: Any = ValueError("a")
    error.add_note("order 7")
    error.__notes__.append(7)
    assert told(error).traceback == "ValueError: a\norder 7\n"
    error.__notes__ = 7
    assert told(error).traceback == "ValueError: a\n"


def group(message: str, *members: BaseException) -> BaseException:
    kind: Any = type("Group", (Exception,), {"exceptions": members})
    return kind(message)  # type: ignore[no-any-return]


def caught(message: str) -> BaseException:
    try:
        fail(message)
    except ValueError as error:
        return error
    raise AssertionError


def test_stat_2_the_members_of_a_group_are_told() -> None:
    failure = told(group("two failed", caught("first"), group("inner", KeyError("second"))))
    assert "\n  [1] ValueError: first\n" in failure.traceback
    assert "in fail\n" in failure.traceback
    assert "\n    [1] KeyError: 'second'\n" in failure.traceback


def test_stat_2_a_large_group_is_told_by_its_ends() -> None:
    error = group("all failed", *(ValueError(str(number)) for number in range(1000)))
    error = group("nested", *[group("nested", *[error] * 50)] * 50)
    failure = told(error)
    assert "members left out" in failure.traceback
    assert failure.truncated
    assert is_safe(failure)


@pytest.mark.parametrize("members", [(), "text", ("text",), (ValueError("a"), 7), 7])
def test_what_only_looks_like_a_group_is_told(members: Any) -> None:
    kind: Any = type("Group", (Exception,), {"exceptions": members})
    assert told(kind("m")).traceback.endswith("Group: m\n")


@pytest.mark.parametrize(
    "name", ["__cause__", "__context__", "__traceback__", "__notes__", "exceptions", "args", "__suppress_context__"]
)
def test_stat_2_attributes_that_raise_are_left_out(name: str) -> None:
    def raises(self: object) -> None:
        raise RuntimeError

    kind: Any = type("Hostile", (Exception,), {name: property(raises)})
    assert is_safe(raised(lambda: (_ for _ in ()).throw(kind("m"))))


def test_a_module_whose_source_cannot_be_read_is_told_without_it() -> None:
    class Loader:
        def get_source(self, name: str) -> str:
            raise RuntimeError

    space: dict[str, Any] = {"__name__": "made.up", "__loader__": Loader(), "fail": fail}
    body = FunctionType(fail.__code__.replace(co_filename="made/up.py"), {**fail.__globals__, **space}, "fail")
    failure = raised(lambda: body("no"))
    assert 'File "made/up.py"' in failure.traceback
    assert is_safe(failure)
