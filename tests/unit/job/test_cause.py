"""What failed alike is one cause group."""

from __future__ import annotations

from collections.abc import Callable
from types import FunctionType
from typing import Any

import pytest

from .told import fail, raised, told

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
    code = body.__code__.replace(**changes)
    return FunctionType(code, space, body.__name__, body.__defaults__, body.__closure__)


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
    with pytest.raises(ValueError, match="no such order") as caught:
        body()
    entry = caught.value.__traceback__
    assert entry is not None
    assert told(caught.value.with_traceback(entry.tb_next)).cause != told(ValueError("x")).cause
