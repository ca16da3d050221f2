"""What a failure says about trying again: the contract first, control flow never."""

from __future__ import annotations

import builtins
import sys
from datetime import timedelta
from types import ModuleType
from typing import Any

import pytest

from celery_guard import errors
from celery_guard.contract.classify import Classified, FailureClass, classify, retryable
from celery_guard.contract.retry import Retry

from .vendors import answer, foreign, known

TRANSIENT, THROTTLED, PERMANENT, UNKNOWN, CONTROL = (
    FailureClass.TRANSIENT,
    FailureClass.THROTTLED,
    FailureClass.PERMANENT,
    FailureClass.UNKNOWN,
    FailureClass.CONTROL,
)


# -- control flow -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "error",
    [
        SystemExit(1),
        KeyboardInterrupt(),
        GeneratorExit(),
        errors.LeaseLost(),
        errors.JobCancelled(),
        errors.DeadlinePassed(),
        foreign("celery.exceptions.Retry", foreign("celery.exceptions.TaskPredicate"))(),
    ],
)
def test_retry_1_control_flow_is_no_failure_whatever_the_contract_names(error: BaseException) -> None:
    everything = Retry(max_attempts=9, on=(BaseException, Exception), only=True)
    assert classify(error, everything) == Classified(CONTROL)
    assert not retryable(CONTROL, everything)


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (errors.StoreUnavailableError(), TRANSIENT),
        (errors.KeyBusy(), TRANSIENT),
        (errors.KeyConflict(""), PERMANENT),
        (errors.PayloadError(""), PERMANENT),
        (errors.NotGuardedError(), PERMANENT),
        (errors.JobFailed(""), PERMANENT),
    ],
)
def test_the_guards_own_errors(error: BaseException, expected: FailureClass) -> None:
    assert known(error) is expected


# -- the contract -------------------------------------------------------------------------------------------------------


class Declined(Exception):
    pass


class CardDeclined(Declined):
    pass


class Expired(CardDeclined):
    pass


@pytest.mark.parametrize(
    ("retry", "error", "expected"),
    [
        (Retry(on=(ValueError,)), ValueError(), TRANSIENT),
        (Retry(on=(LookupError,)), KeyError(), TRANSIENT),
        (Retry(never=(ConnectionError,)), ConnectionResetError(), PERMANENT),
        (Retry(throttled=(Declined,)), CardDeclined(), THROTTLED),
        (Retry(on=(Declined,), never=(CardDeclined,)), Expired(), PERMANENT),
        (Retry(on=(CardDeclined,), never=(Declined,)), Expired(), TRANSIENT),
        (Retry(on=(CardDeclined,), throttled=(Expired,), never=(Declined,)), Expired(), THROTTLED),
        (Retry(on=(Declined,)), RuntimeError(), UNKNOWN),
    ],
)
def test_the_most_specific_class_that_the_contract_names_wins(
    retry: Retry, error: BaseException, expected: FailureClass
) -> None:
    assert classify(error, retry).failure_class is expected


def test_in_a_tie_never_wins_over_throttled_and_throttled_over_on() -> None:
    own = f"{CardDeclined.__module__}.CardDeclined"
    assert classify(CardDeclined(), Retry(never=(own,), on=(CardDeclined,))).failure_class is PERMANENT
    assert classify(CardDeclined(), Retry(never=(own,), throttled=(CardDeclined,))).failure_class is PERMANENT
    assert classify(CardDeclined(), Retry(throttled=(own,), on=(CardDeclined,))).failure_class is THROTTLED


def test_a_dotted_name_stands_for_the_class_and_its_descendants() -> None:
    timeout = foreign("vendor.exceptions.Timeout")
    read_timeout = foreign("vendor.exceptions.ReadTimeout", timeout)
    assert classify(read_timeout(), Retry(never=("vendor.exceptions.Timeout",))).failure_class is PERMANENT
    assert classify(read_timeout(), Retry(never=("vendor.exceptions.Time",))).failure_class is UNKNOWN
    assert classify(KeyError(), Retry(on=("KeyError",))).failure_class is TRANSIENT
    assert classify(KeyError(), Retry(on=("builtins.LookupError",))).failure_class is TRANSIENT


def test_a_dotted_name_may_be_the_one_that_the_library_gives_it(monkeypatch: pytest.MonkeyPatch) -> None:
    timeout = foreign("vendor._private.Timeout")
    vendor = ModuleType("vendor")
    vendor.Timeout = timeout  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "vendor", vendor)
    assert classify(timeout(), Retry(never=("vendor.Timeout",))).failure_class is PERMANENT
    assert classify(timeout(), Retry(never=("vendor.Other",))).failure_class is UNKNOWN


def test_a_dotted_name_of_a_library_that_is_not_loaded_imports_nothing() -> None:
    before = set(sys.modules)
    assert classify(RuntimeError(), Retry(never=("wsgiref.validate.WSGIWarning",))).failure_class is UNKNOWN
    assert "wsgiref.validate" not in set(sys.modules) - before


def test_a_hint_survives_what_the_contract_says() -> None:
    error = answer(429, {"Retry-After": "7"})
    assert classify(error, Retry(on=(type(error),))) == Classified(THROTTLED, timedelta(seconds=7))
    assert classify(error, Retry(throttled=(type(error),))) == Classified(THROTTLED, timedelta(seconds=7))
    assert classify(error, Retry(never=(type(error),))) == Classified(PERMANENT)


# -- what is repeated ---------------------------------------------------------------------------------------------------


def test_without_a_declared_retry_nothing_is_repeated() -> None:
    assert not any(retryable(found, Retry()) for found in FailureClass)


def test_with_a_declared_retry_all_is_repeated_but_what_is_known_to_be_final() -> None:
    retry = Retry(max_attempts=2)
    assert {found for found in FailureClass if retryable(found, retry)} == {TRANSIENT, THROTTLED, UNKNOWN}
    unbounded = Retry(max_attempts=None, within=timedelta(hours=1))
    assert {found for found in FailureClass if retryable(found, unbounded)} == {TRANSIENT, THROTTLED, UNKNOWN}


def test_only_leaves_everything_that_is_not_named_alone() -> None:
    retry = Retry(max_attempts=2, on=(ConnectionError,), throttled=(Declined,), only=True)
    assert classify(ConnectionResetError(), retry).failure_class is TRANSIENT
    assert classify(CardDeclined(), retry).failure_class is THROTTLED
    assert classify(TimeoutError(), retry).failure_class is UNKNOWN
    assert classify(answer(429, {"Retry-After": "7"}), retry) == Classified(UNKNOWN)
    assert classify(ValueError(), retry).failure_class is PERMANENT
    assert not retryable(UNKNOWN, retry)
    assert retryable(TRANSIENT, retry)


# -- groups -------------------------------------------------------------------------------------------------------------


def group(*members: BaseException) -> BaseException:
    """An exception group, also on Pythons that have none."""
    error: Any = foreign("exceptiongroup.ExceptionGroup", foreign("exceptiongroup.BaseExceptionGroup"))()
    error.exceptions = members
    return error  # type: ignore[no-any-return]


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (group(TimeoutError(), ValueError(), RuntimeError()), PERMANENT),
        (group(TimeoutError(), RuntimeError()), UNKNOWN),
        (group(TimeoutError(), answer(429)), THROTTLED),
        (group(TimeoutError(), ConnectionError()), TRANSIENT),
        (group(TimeoutError(), group(ConnectionError(), group(ValueError()))), PERMANENT),
        (group(TimeoutError(), SystemExit()), TRANSIENT),
        (group(SystemExit(), errors.LeaseLost()), CONTROL),
        (group(), UNKNOWN),
    ],
)
def test_of_a_group_the_worst_member_counts(error: BaseException, expected: FailureClass) -> None:
    assert known(error) is expected


def test_a_group_is_read_by_what_the_contract_says_about_its_members() -> None:
    error = group(CardDeclined(), TimeoutError())
    assert classify(error, Retry(on=(Exception,), never=(CardDeclined,))).failure_class is PERMANENT
    assert classify(error, Retry(on=(Exception,))).failure_class is TRANSIENT
    named = Retry(on=("exceptiongroup.ExceptionGroup",), never=(CardDeclined,))
    assert classify(error, named).failure_class is TRANSIENT


def test_a_group_waits_as_long_as_the_most_patient_member_asks() -> None:
    error = group(answer(429, {"Retry-After": "3"}), answer(503, {"Retry-After": "9"}))
    assert classify(error, Retry()) == Classified(THROTTLED, timedelta(seconds=9))


def test_a_group_of_groups_without_end_is_left_in_time() -> None:
    error = group(TimeoutError())
    error.exceptions = (error,)  # type: ignore[attr-defined]
    assert known(error) is UNKNOWN


@pytest.mark.skipif(sys.version_info < (3, 11), reason="the language has no groups yet")
def test_a_group_of_the_language_is_a_group() -> None:
    kind: Any = vars(builtins)["ExceptionGroup"]
    assert known(kind("two", [TimeoutError(), ValueError()])) is PERMANENT


# -- exceptions that misbehave --------------------------------------------------------------------------------------------


def test_an_exception_is_never_asked_for_its_text() -> None:
    class Silent(ConnectionError):
        def __str__(self) -> str:
            raise AssertionError("asked for its text")

        __repr__ = __str__

    assert known(Silent()) is TRANSIENT


def test_attributes_that_raise_say_nothing() -> None:
    def broken(_: object) -> None:
        raise RuntimeError

    error = foreign(
        "requests.exceptions.HTTPError",
        OSError,
        response=property(broken),
        headers=property(broken),
        errno=property(broken),
        exceptions=property(broken),
    )
    assert known(error()) is UNKNOWN
    assert known(foreign("exceptiongroup.BaseExceptionGroup", exceptions=property(broken))()) is UNKNOWN
