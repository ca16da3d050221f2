"""What failed alike is one cause group."""

from __future__ import annotations

import os
from collections.abc import Callable
from types import FunctionType
from typing import Any

import pytest

from celery_guard.job.stack import place_of

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


# -- the place ------------------------------------------------------------------------------------------------------------

STANDARD = os.path.dirname(os.__file__)
LIBRARY = f"{STANDARD}/site-packages"
DEBIAN = "/usr/lib/python3/dist-packages"
APP = "/srv/shop"


def calls(inner: Callable[..., None], *deeper: Callable[..., None]) -> None:
    inner(*deeper)


def place(*stack: str) -> str:
    """The place of a failure under frames that are written ``file place in the installation:module:function``."""
    frames = []
    for number, frame in enumerate(stack):
        where, module, function = frame.split(":")
        body = fail if number == len(stack) - 1 else calls
        file = where if where.startswith("<") else f"{where}/{module.replace('.', '/')}.py"
        frames.append(moved(body, module=module, co_filename=file, co_name=function))
    with pytest.raises(ValueError, match="no such order") as caught:
        frames[0](*frames[1:])
    # Without this test's own frame: what a worker sees begins with the machinery.
    entry = caught.value.__traceback__
    assert entry is not None
    return place_of(caught.value.with_traceback(entry.tb_next))


TRACE = f"{LIBRARY}:celery.app.trace:trace_task"


@pytest.mark.parametrize(
    ("stack", "expected"),
    [
        # the innermost of the user's own
        ((TRACE, f"{APP}:shop.tasks:charge"), "shop.tasks:charge"),
        ((TRACE, f"{APP}:shop.tasks:charge", f"{APP}:billing.api:post"), "billing.api:post"),
        # not a library that it called
        ((f"{APP}:shop.tasks:charge", f"{LIBRARY}:vendor.client:send"), "shop.tasks:charge"),
        ((f"{APP}:shop.tasks:charge", f"{DEBIAN}:vendor.client:send"), "shop.tasks:charge"),
        ((f"{APP}:shop.tasks:charge", f"{STANDARD}:json.decoder:decode"), "shop.tasks:charge"),
        ((f"{APP}:shop.tasks:charge", "<frozen importlib>:importlib:load"), "shop.tasks:charge"),
        ((f"{APP}:shop.tasks:charge", f"{LIBRARY}:celery.canvas:apply"), "shop.tasks:charge"),
        # through a library and back
        ((f"{APP}:shop.tasks:charge", f"{LIBRARY}:vendor.retry:call", f"{APP}:shop.api:post"), "shop.api:post"),
        # an app that is installed, whatever its body was called through
        ((TRACE, f"{LIBRARY}:shop.tasks:charge", f"{LIBRARY}:vendor.client:send"), "shop.tasks:charge"),
        ((TRACE, f"{LIBRARY}:shop.tasks:charge", f"{LIBRARY}:shop.api:post"), "shop.api:post"),
        (
            (TRACE, f"{STANDARD}:contextlib:inner", f"{LIBRARY}:shop.tasks:charge", f"{LIBRARY}:v:w"),
            "shop.tasks:charge",
        ),
        ((TRACE, "<frozen runpy>:runpy:run", f"{LIBRARY}:shop.tasks:charge", f"{LIBRARY}:v:w"), "shop.tasks:charge"),
        # nothing of the user's
        ((TRACE, f"{STANDARD}:json.decoder:decode"), "json.decoder:decode"),
        ((TRACE,), "celery.app.trace:trace_task"),
        # a comprehension is not a place of its own on every Python
        ((f"{APP}:shop.tasks:charge", f"{APP}:shop.tasks:<listcomp>"), "shop.tasks:charge"),
        # a script has no module to be known by
        ((f"{APP}:__main__:charge",), "__main__.py:charge"),
    ],
)
def test_the_place_is_the_innermost_frame_of_the_users_code(stack: tuple[str, ...], expected: str) -> None:
    assert place(*stack) == expected


def test_a_frame_without_a_module_is_known_by_its_file() -> None:
    space = {"ValueError": ValueError}
    body = FunctionType(fail.__code__.replace(co_filename="/srv/shop/jobs.py"), space, "fail")
    with pytest.raises(ValueError, match="no") as caught:
        body("no")
    assert place_of(caught.value) == "jobs.py:fail"


def test_an_exception_that_was_never_raised_has_no_place() -> None:
    assert place_of(ValueError()) == ""
