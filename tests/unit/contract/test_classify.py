"""What a failure says about trying again: the contract first, then what is known by name."""

from __future__ import annotations

import builtins
import errno
import json
import smtplib
import socket
import sqlite3
import ssl
import subprocess
import sys
import urllib.error
from collections.abc import Callable
from datetime import timedelta
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from celery_guard import errors
from celery_guard.contract.classify import Classified, FailureClass, classify, retryable
from celery_guard.contract.retry import Retry

TRANSIENT, THROTTLED, PERMANENT, UNKNOWN, CONTROL = (
    FailureClass.TRANSIENT,
    FailureClass.THROTTLED,
    FailureClass.PERMANENT,
    FailureClass.UNKNOWN,
    FailureClass.CONTROL,
)


def known(error: BaseException) -> FailureClass:
    """The class of an error about which the contract says nothing."""
    return classify(error, Retry()).failure_class


def foreign(dotted: str, *parents: type, **attributes: Any) -> type[Exception]:
    """A class that looks like one of a library which is not installed here."""
    module, _, name = dotted.rpartition(".")
    return type(name, parents or (Exception,), {"__module__": module, **attributes})


# -- the standard library -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (ConnectionError(), TRANSIENT),
        (ConnectionResetError(errno.ECONNRESET, ""), TRANSIENT),
        (BrokenPipeError(), TRANSIENT),
        (TimeoutError(), TRANSIENT),
        (InterruptedError(), TRANSIENT),
        (BlockingIOError(), TRANSIENT),
        (OSError(errno.ENETUNREACH, ""), TRANSIENT),
        (OSError(errno.EHOSTUNREACH, ""), TRANSIENT),
        (OSError(errno.ENOSPC, ""), TRANSIENT),
        (OSError(errno.EMFILE, ""), TRANSIENT),
        (FileNotFoundError(errno.ENOENT, ""), PERMANENT),
        (PermissionError(errno.EACCES, ""), PERMANENT),
        (OSError(errno.EROFS, ""), PERMANENT),
        (OSError(), UNKNOWN),
        (OSError("text"), UNKNOWN),
        (OSError(99_999, ""), UNKNOWN),
        (socket.gaierror(socket.EAI_AGAIN, ""), TRANSIENT),
        (socket.gaierror(socket.EAI_NONAME, ""), UNKNOWN),
        (ssl.SSLError(1, "an SSL number, which is EPERM as an errno"), UNKNOWN),
        (ssl.SSLEOFError(8, ""), TRANSIENT),
        (subprocess.TimeoutExpired("x", 1), TRANSIENT),
        (subprocess.CalledProcessError(1, "x"), UNKNOWN),
        (urllib.error.URLError(ConnectionRefusedError()), TRANSIENT),
        (urllib.error.URLError(FileNotFoundError(errno.ENOENT, "")), PERMANENT),
        (urllib.error.URLError("text"), TRANSIENT),
        (urllib.error.URLError(RuntimeError()), UNKNOWN),
        (ValueError(), PERMANENT),
        (UnicodeDecodeError("utf-8", b"", 0, 1, ""), PERMANENT),
        (json.JSONDecodeError("", "", 0), PERMANENT),
        (TypeError(), PERMANENT),
        (KeyError(), PERMANENT),
        (IndexError(), PERMANENT),
        (AttributeError(), PERMANENT),
        (ZeroDivisionError(), PERMANENT),
        (AssertionError(), PERMANENT),
        (NotImplementedError(), PERMANENT),
        (RecursionError(), PERMANENT),
        (ImportError(), PERMANENT),
        (NameError(), PERMANENT),
        (RuntimeError(), UNKNOWN),
        (MemoryError(), UNKNOWN),
        (Exception(), UNKNOWN),
        (sqlite3.OperationalError(), TRANSIENT),
        (sqlite3.IntegrityError(), PERMANENT),
        (sqlite3.DatabaseError(), UNKNOWN),
    ],
)
def test_failures_of_the_standard_library(error: BaseException, expected: FailureClass) -> None:
    assert known(error) is expected


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (smtplib.SMTPServerDisconnected(), TRANSIENT),
        (smtplib.SMTPDataError(451, b""), TRANSIENT),
        (smtplib.SMTPConnectError(421, b""), TRANSIENT),
        (smtplib.SMTPDataError(550, b""), PERMANENT),
        (smtplib.SMTPAuthenticationError(535, b""), PERMANENT),
        (smtplib.SMTPSenderRefused(452, b"", "a"), TRANSIENT),
        (smtplib.SMTPRecipientsRefused({"a": (450, b""), "b": (451, b"")}), TRANSIENT),
        (smtplib.SMTPRecipientsRefused({"a": (450, b""), "b": (550, b"")}), PERMANENT),
        (smtplib.SMTPRecipientsRefused({}), UNKNOWN),
        (smtplib.SMTPNotSupportedError(), PERMANENT),
        (smtplib.SMTPException(), UNKNOWN),
    ],
)
def test_a_mail_server_that_says_later_is_believed(error: BaseException, expected: FailureClass) -> None:
    assert known(error) is expected


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


# -- HTTP ---------------------------------------------------------------------------------------------------------------


def answer(status: int, headers: dict[str, str] | None = None) -> Exception:
    error = foreign("requests.exceptions.HTTPError", OSError)()
    error.response = SimpleNamespace(status_code=status, headers=headers or {})  # type: ignore[attr-defined]
    return error


Make = Callable[[int, dict[str, str]], Exception]


def by_httpx(status: int, headers: dict[str, str]) -> Exception:
    def never_set(self: object) -> None:
        raise RuntimeError("The request property has not been set.")

    error = foreign("httpx.HTTPStatusError", foreign("httpx.HTTPError", request=property(never_set)))()
    error.response = SimpleNamespace(status_code=status, headers=headers)  # type: ignore[attr-defined]
    return error


def by_aiohttp(status: int, headers: dict[str, str]) -> Exception:
    error = foreign("aiohttp.client_exceptions.ClientResponseError")()
    error.status, error.headers = status, headers  # type: ignore[attr-defined]
    return error


def by_stripe(status: int, headers: dict[str, str]) -> Exception:
    error = foreign("stripe._error.APIError", foreign("stripe._error.StripeError"))()
    error.http_status, error.headers = status, headers  # type: ignore[attr-defined]
    return error


def by_google(status: int, headers: dict[str, str]) -> Exception:
    error = foreign(
        "google.api_core.exceptions.ServerError", foreign("google.api_core.exceptions.GoogleAPICallError")
    )()
    error.code, error.response = status, SimpleNamespace(headers=headers)  # type: ignore[attr-defined]
    return error


def by_openai(status: int, headers: dict[str, str]) -> Exception:
    error = foreign("openai.RateLimitError", foreign("openai.APIStatusError"))()
    error.status_code, error.response = status, SimpleNamespace(headers=headers)  # type: ignore[attr-defined]
    return error


def by_botocore(status: int, headers: dict[str, str]) -> Exception:
    error = foreign("botocore.errorfactory.Some", foreign("botocore.exceptions.ClientError"))()
    lower = {name.lower(): value for name, value in headers.items()}
    meta = {"HTTPStatusCode": status, "HTTPHeaders": lower}
    error.response = {"Error": {"Code": "Other"}, "ResponseMetadata": meta}  # type: ignore[attr-defined]
    return error


def by_urllib(status: int, headers: dict[str, str]) -> Exception:
    return urllib.error.HTTPError("http://x", status, "", headers, None)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "make", [answer, by_httpx, by_aiohttp, by_stripe, by_google, by_openai, by_botocore, by_urllib]
)
@pytest.mark.parametrize(
    ("status", "headers", "expected"),
    [
        (400, {}, Classified(PERMANENT)),
        (401, {}, Classified(PERMANENT)),
        (404, {}, Classified(PERMANENT)),
        (408, {}, Classified(TRANSIENT)),
        (409, {}, Classified(PERMANENT)),
        (425, {}, Classified(TRANSIENT)),
        (429, {}, Classified(THROTTLED)),
        (429, {"Retry-After": "30"}, Classified(THROTTLED, timedelta(seconds=30))),
        (403, {"Retry-After": "30"}, Classified(THROTTLED, timedelta(seconds=30))),
        (500, {}, Classified(TRANSIENT)),
        (501, {}, Classified(PERMANENT)),
        (502, {}, Classified(TRANSIENT)),
        (503, {"Retry-After": "5"}, Classified(THROTTLED, timedelta(seconds=5))),
        (504, {}, Classified(TRANSIENT)),
        (529, {}, Classified(TRANSIENT)),
        (302, {}, Classified(PERMANENT)),
    ],
)
def test_an_http_answer_is_read_wherever_its_library_keeps_it(
    make: Make, status: int, headers: dict[str, str], expected: Classified
) -> None:
    assert classify(make(status, headers), Retry()) == expected


def test_an_http_error_without_an_answer_is_unknown() -> None:
    error = foreign("requests.exceptions.HTTPError", OSError)()
    error.response = None  # type: ignore[attr-defined]
    assert known(error) is UNKNOWN


# -- other libraries ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("ThrottlingException", THROTTLED),
        ("SlowDown", THROTTLED),
        ("InternalError", TRANSIENT),
        ("AccessDenied", PERMANENT),
        (None, PERMANENT),
        (["no", "text"], PERMANENT),
    ],
)
def test_an_aws_service_is_read_by_its_code(code: object, expected: FailureClass) -> None:
    error = foreign("botocore.exceptions.ClientError")()
    error.response = {"Error": {"Code": code}, "ResponseMetadata": {"HTTPStatusCode": 400}}  # type: ignore[attr-defined]
    assert known(error) is expected


@pytest.mark.parametrize("response", [None, {}, {"Error": 3, "ResponseMetadata": "x"}, {"ResponseMetadata": {}}])
def test_an_aws_error_that_says_nothing_is_unknown(response: object) -> None:
    error = foreign("botocore.exceptions.ClientError")()
    error.response = response  # type: ignore[attr-defined]
    assert known(error) is UNKNOWN


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("UNAVAILABLE", TRANSIENT),
        ("DEADLINE_EXCEEDED", TRANSIENT),
        ("RESOURCE_EXHAUSTED", THROTTLED),
        ("INVALID_ARGUMENT", PERMANENT),
        ("UNKNOWN", UNKNOWN),
    ],
)
def test_a_grpc_call_is_read_by_its_status(code: str, expected: FailureClass) -> None:
    error = foreign(
        "grpc._channel._InactiveRpcError", foreign("grpc.RpcError"), code=lambda _: SimpleNamespace(name=code)
    )
    assert known(error()) is expected


def test_a_grpc_error_whose_status_cannot_be_read_is_unknown() -> None:
    def broken(_: object) -> None:
        raise RuntimeError

    assert known(foreign("grpc.RpcError", code=broken)()) is UNKNOWN


@pytest.mark.parametrize(
    ("name", "invalidated", "expected"),
    [
        ("OperationalError", False, TRANSIENT),
        ("InterfaceError", False, TRANSIENT),
        ("IntegrityError", False, PERMANENT),
        ("ProgrammingError", False, PERMANENT),
        ("DataError", False, PERMANENT),
        ("InternalError", False, UNKNOWN),
        ("InternalError", True, TRANSIENT),
        ("ProgrammingError", True, TRANSIENT),
    ],
)
def test_a_statement_under_which_the_connection_was_lost_is_repeated(
    name: str, invalidated: bool, expected: FailureClass
) -> None:
    error = foreign(f"sqlalchemy.exc.{name}", foreign("sqlalchemy.exc.DBAPIError"))()
    error.connection_invalidated = invalidated  # type: ignore[attr-defined]
    assert known(error) is expected


@pytest.mark.parametrize("module", ["stripe.error", "stripe._error"])
def test_a_declined_card_is_final(module: str) -> None:
    error = foreign(f"{module}.CardError", foreign(f"{module}.StripeError"))()
    error.http_status = 402  # type: ignore[attr-defined]
    assert known(error) is PERMANENT


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
