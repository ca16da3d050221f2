"""An exception as text that every database takes."""

from __future__ import annotations

import socket
import sys
import threading
import tracemalloc
from collections.abc import Callable
from typing import Any

import pytest

from celery_guard.job.failure import MESSAGE_LIMIT, TRACEBACK_LIMIT, describe
from celery_guard.job.row import StoredFailure


def told(error: BaseException, task: str = "shop.charge") -> StoredFailure:
    return describe(error, failure_class="unknown", task=task, worker="w1@host", fence=7, attempt=2)


def raised(body: Callable[[], Any]) -> StoredFailure:
    """What is told about the exception that ``body`` raises."""
    try:
        body()
    except BaseException as error:  # noqa: BLE001 - any
        return told(error)
    raise AssertionError("nothing was raised")


def is_safe(failure: StoredFailure) -> bool:
    """Bounded, and taken by every database."""
    texts = (failure.type_name, failure.message, failure.traceback, failure.cause, failure.worker)
    for text in texts:
        text.encode()
        assert type(text) is str
        assert "\x00" not in text
    assert len(failure.message.encode()) <= MESSAGE_LIMIT
    assert len(failure.traceback.encode()) <= TRACEBACK_LIMIT
    assert len(failure.type_name) <= 255
    assert len(failure.cause) == 16
    return True


def fail(message: str = "no such order") -> None:
    raise ValueError(message)


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


def test_stat_2_an_exception_that_holds_what_cannot_be_stored_is_told() -> None:
    class Holder(Exception):
        pass

    with socket.socket() as held:
        error = Holder(threading.Lock())
        error.socket = held  # type: ignore[attr-defined]
        assert is_safe(told(error))


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
        outer = RuntimeError(f"link {number} " + "é" * 5000)
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
    error = ValueError("a")
    error.add_note("order 7")
    error.__notes__.append(7)  # type: ignore[arg-type]
    assert told(error).traceback == "ValueError: a\norder 7\n"
    error.__notes__ = 7  # type: ignore[assignment]
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
    body = type(fail)(fail.__code__.replace(co_filename="made/up.py"), {**fail.__globals__, **space}, "fail")
    failure = raised(lambda: body("no"))
    assert 'File "made/up.py"' in failure.traceback
    assert is_safe(failure)


# -- cause groups -----------------------------------------------------------------------------------------------------------


def other() -> None:
    raise ValueError("elsewhere")


def test_what_failed_alike_is_one_cause() -> None:
    assert raised(lambda: fail("order 1")).cause == raised(lambda: fail("order 2")).cause


def test_another_task_class_or_place_is_another_cause() -> None:
    def key_error() -> None:
        raise KeyError

    causes = {raised(fail).cause, raised(other).cause, raised(key_error).cause, told(ValueError("x")).cause}
    assert len(causes) == 4
    assert told(ValueError(), "a").cause != told(ValueError(), "b").cause


def moved(body: Callable[..., Any], **changes: Any) -> Callable[..., Any]:
    """The same body, as if it stood elsewhere."""
    space = {**body.__globals__, "__name__": changes.pop("module", body.__globals__["__name__"])}
    code = body.__code__.replace(**changes)  # type: ignore[attr-defined]
    return type(fail)(code, space, body.__name__, body.__defaults__, body.__closure__)  # type: ignore[attr-defined]


def test_a_cause_outlives_an_edit_above_it() -> None:
    assert raised(moved(fail, co_firstlineno=4000)).cause == raised(fail).cause


LIBRARY = "/env/lib/python3/site-packages/"


def test_the_place_is_in_the_users_code_and_not_in_a_library_that_it_called() -> None:
    inside = moved(fail, module="vendor.client", co_filename=LIBRARY + "vendor/client.py")
    elsewhere = moved(other, module="vendor.deep", co_filename=LIBRARY + "vendor/deep.py")

    def body(call: Callable[[], None]) -> None:
        call()

    assert raised(lambda: body(inside)).cause == raised(lambda: body(elsewhere)).cause
    assert raised(lambda: body(inside)).cause != raised(inside).cause


def calls(inner: Callable[[], None]) -> None:
    inner()


def test_an_app_that_is_installed_is_the_users_code_all_the_same() -> None:
    def at(module: str, body: Callable[..., Any]) -> Callable[..., Any]:
        return moved(body, module=module, co_filename=f"{LIBRARY}{module.replace('.', '/')}.py")

    def thrown(outermost: Callable[..., Any], *inner: Callable[..., Any]) -> str:
        try:
            outermost(*inner)
        except ValueError as error:
            # Without this test's own frame: what a worker sees begins with the machinery.
            return told(error.with_traceback(error.__traceback__.tb_next)).cause  # type: ignore[union-attr]
        raise AssertionError

    shop = at("shop.tasks", calls)
    assert thrown(shop, at("vendor.a", fail)) == thrown(shop, at("vendor.b", other))
    assert thrown(shop, at("shop.a", fail)) != thrown(shop, at("shop.b", other))
    machinery = at("celery.app.trace", lambda body, inner: body(inner))
    assert thrown(machinery, shop, at("vendor.a", fail)) == thrown(shop, at("vendor.b", other))


def test_a_comprehension_is_no_place() -> None:
    def plain() -> None:
        for _ in range(1):
            fail_here()

    def fail_here() -> None:
        [int("x") for _ in range(1)]

    def by_loop() -> None:
        fail_here()

    assert raised(plain).cause == raised(by_loop).cause


def test_a_failure_outside_of_any_users_code_has_a_place() -> None:
    body = moved(fail, module="celery.app.trace", co_filename=LIBRARY + "celery/app/trace.py")
    try:
        body()
    except ValueError as error:
        failure = told(error.with_traceback(error.__traceback__.tb_next))  # type: ignore[union-attr]
    assert failure.cause != told(ValueError("x")).cause
