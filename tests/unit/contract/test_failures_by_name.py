"""What is known about the failures of the usual libraries."""

from __future__ import annotations

import errno
import io
import json
import smtplib
import socket
import sqlite3
import ssl
import subprocess
import urllib.error
from collections.abc import Callable
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import pytest

from celery_guard.contract.classify import Classified, FailureClass, classify
from celery_guard.contract.retry import Retry

from .vendors import answer, foreign, known

TRANSIENT, THROTTLED, PERMANENT, UNKNOWN, CONTROL = (
    FailureClass.TRANSIENT,
    FailureClass.THROTTLED,
    FailureClass.PERMANENT,
    FailureClass.UNKNOWN,
    FailureClass.CONTROL,
)


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


def refused(answers: Any) -> smtplib.SMTPRecipientsRefused:
    """With answers that are none."""
    return smtplib.SMTPRecipientsRefused(answers)


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
        (refused({"a": (450, b""), "b": "text"}), UNKNOWN),
        (refused({"a": ()}), UNKNOWN),
        *((smtplib.SMTPResponseException(code, b""), TRANSIENT) for code in (400, 499)),
        *((smtplib.SMTPResponseException(code, b""), PERMANENT) for code in (500, 599)),
        *((smtplib.SMTPResponseException(code, b""), UNKNOWN) for code in (-1, 399, 600)),
        (smtplib.SMTPNotSupportedError(), PERMANENT),
        (smtplib.SMTPException(), UNKNOWN),
    ],
)
def test_a_mail_server_that_says_later_is_believed(error: BaseException, expected: FailureClass) -> None:
    assert known(error) is expected


# -- HTTP ---------------------------------------------------------------------------------------------------------------


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
    error = urllib.error.HTTPError("http://x", status, "", headers, io.BytesIO())  # type: ignore[arg-type]
    error.close()
    return error


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
