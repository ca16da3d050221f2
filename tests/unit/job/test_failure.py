"""An exception as text that every database takes."""

from __future__ import annotations

import socket
import threading
import tracemalloc
from typing import Any

import pytest

from celery_guard.job.failure import MESSAGE_LIMIT

from .told import fail, is_safe, raised, told


def test_a_failure_is_told_as_python_tells_it() -> None:
    failure = raised(fail)
    assert (failure.failure_class, failure.worker, failure.fence, failure.attempt) == ("unknown", "w1@host", 7, 2)
    assert (failure.type_name, failure.message, failure.truncated) == ("ValueError", "no such order", False)
    assert failure.traceback.startswith("Traceback (most recent call last):\n  File ")
    assert "in fail\n    raise ValueError(message)\n" in failure.traceback
    assert failure.traceback.endswith("\nValueError: no such order\n")
    assert is_safe(failure)


def test_an_exception_that_was_never_raised_is_told_too() -> None:
    failure = told(RuntimeError("lost"))
    assert failure.traceback == "RuntimeError: lost\n"
    assert told(RuntimeError()).traceback == "RuntimeError\n"
    assert is_safe(failure)


def test_no_local_and_no_argument_is_told() -> None:
    def body(card: str) -> None:
        secret = card[::-1]
        raise ValueError("declined", len(secret))

    card = "4111" * 4
    failure = raised(lambda: body(card))
    assert "4111" not in failure.traceback
    assert "1114" not in failure.traceback


# -- messages -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (ValueError(), ""),
        (ValueError("a", 1), "('a', 1)"),
        (ValueError(["a"]), "['a']"),
        (ValueError(b"a"), "b'a'"),
        (KeyError("a"), "'a'"),
        (KeyError(), ""),
        (OSError(2, "No such file", "x"), "[Errno 2] No such file: 'x'"),
        (UnicodeDecodeError("utf-8", b"\xff", 0, 1, "bad"), "'utf-8' codec can't decode byte 0xff in position 0: bad"),
        (ValueError(None), "None"),
        (
            ValueError({"b": {2, 1}, "a": (frozenset(), set(), bytearray(b"x"))}),
            "{'b': {1, 2}, 'a': (frozenset(), set(), bytearray(b'x'))}",
        ),
        (ValueError(frozenset({1}), 2), "(frozenset({1}), 2)"),
    ],
)
def test_a_message_is_what_the_exception_says(error: BaseException, message: str) -> None:
    assert told(error).message == message == str(error)


def test_stat_2_what_no_database_takes_is_replaced() -> None:
    failure = told(ValueError("a\x00b\ud800c\udfffd é 😀"))
    assert failure.message == "a\ufffdb\ufffdc\ufffdd é 😀"
    assert is_safe(failure)


@pytest.mark.parametrize("letter", ["x", "é", "€", "😀"])
@pytest.mark.parametrize("length", [500, 511, 512, 513, 682, 683, 1024, 2047, 2048, 2049, 5000])
def test_stat_2_a_long_message_is_cut_between_characters_and_marked(letter: str, length: int) -> None:
    failure = told(ValueError(letter * length))
    assert is_safe(failure)
    whole = len((letter * length).encode()) <= MESSAGE_LIMIT
    assert failure.truncated is not whole
    assert failure.message.endswith(letter if whole else " […cut]")
    assert "\ufffd" not in failure.message
    if not whole:
        assert len(failure.message.encode()) > MESSAGE_LIMIT - 4


CIRCLE: dict[str, Any] = {}
CIRCLE["self"] = [CIRCLE] * 100
SHARED: list[Any] = []
for _ in range(8):
    SHARED = [SHARED] * 60


@pytest.mark.parametrize(
    "error",
    [
        ValueError("x" * 50_000_000),
        ValueError("x" * 50_000_000, 1),
        KeyError("x" * 50_000_000),
        ValueError(b"x" * 50_000_000),
        ValueError([b"x"] * 5_000_000),
        ValueError({n: n for n in range(500_000)}, "y"),
        ValueError(set(range(500_000)), "y"),
        ValueError(CIRCLE, "y"),
        ValueError(SHARED, "y"),
    ],
    ids=lambda error: type(error.args[0]).__name__,
)
def test_stat_2_a_message_of_50_megabytes_is_not_built(error: BaseException) -> None:
    tracemalloc.start()
    try:
        failure = told(error)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 2_000_000
    assert is_safe(failure)


def test_a_message_that_is_built_by_the_exception_itself_is_cut() -> None:
    class Large(Exception):
        def __str__(self) -> str:
            return "x" * 1_000_000

    failure = raised(lambda: (_ for _ in ()).throw(Large()))
    assert failure.truncated
    assert is_safe(failure)


class OwnText(str):
    """A text with its own ideas."""

    __slots__ = ()

    def __getitem__(self, index: Any) -> str:
        raise RuntimeError

    def __len__(self) -> int:
        raise RuntimeError


def broken(what: BaseException) -> type[Exception]:
    def text(self: object) -> str:
        raise what

    return type("Broken", (Exception,), {"__str__": text, "__repr__": text})


@pytest.mark.parametrize(
    "what", [RuntimeError("x"), SystemExit(3), KeyboardInterrupt(), RecursionError(), broken(OSError())()]
)
def test_stat_2_a_message_that_cannot_be_read_does_not_hide_the_failure(what: BaseException) -> None:
    failure = raised(lambda: (_ for _ in ()).throw(broken(what)()))
    assert failure.type_name.endswith("Broken")
    assert "its __str__ raises" in failure.message
    assert is_safe(failure)


@pytest.mark.parametrize("value", [3, None, b"a", OwnText("a")], ids=["int", "none", "bytes", "text"])
def test_stat_2_a_str_that_returns_something_else_is_told(value: Any) -> None:
    kind: Any = type("Odd", (Exception,), {"__str__": lambda self: value})
    assert is_safe(told(kind()))


def test_stat_2_arguments_that_cannot_be_printed_are_told() -> None:
    class Thing:
        def __repr__(self) -> str:
            raise SystemExit

        __str__ = __repr__

    assert is_safe(told(ValueError(Thing())))
    assert is_safe(told(ValueError(Thing(), 1)))
    assert is_safe(told(ValueError(OwnText("a"))))
    assert is_safe(told(KeyError(Thing())))


def test_stat_2_an_exception_with_two_required_arguments_is_told() -> None:
    class Declined(Exception):
        def __init__(self, code: int, reason: str) -> None:
            super().__init__(reason)
            self.code = code

    failure = raised(lambda: (_ for _ in ()).throw(Declined(51, "no funds")))
    assert failure.message == "no funds"
    assert failure.type_name.endswith("two_required_arguments_is_told.<locals>.Declined")


def test_a_class_without_a_module_is_known_by_its_name() -> None:
    for module in (7, None):
        assert told(type("Odd", (Exception,), {"__module__": module})()).type_name == "Odd"


def test_stat_2_an_exception_that_holds_what_cannot_be_stored_is_told() -> None:
    class Holder(Exception):
        pass

    with socket.socket() as held:
        error = Holder(threading.Lock())
        error.socket = held  # type: ignore[attr-defined]
        assert is_safe(told(error))
