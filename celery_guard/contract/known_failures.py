"""Failures of the usual libraries, by the dotted name of their class, so that no library has to be imported to be known.

A name stands for its class and all that derive from it: the most specific name in an exception's line of ancestors counts. An
entry is a class of failure, or a rule that looks at the exception and may pass (None), and then the ancestors decide.
"""

from __future__ import annotations

from collections.abc import Iterator

from .failure_class import Classified, FailureClass
from .failure_rules import (
    Rule,
    by_aws_code,
    by_errno,
    by_grpc_code,
    by_resolver,
    by_smtp_code,
    by_smtp_recipients,
    unless_cut_off,
)
from .foreign import attribute
from .http_status import by_answer

__all__ = ["KNOWN", "by_name"]

_T, _P, _U, _C = FailureClass.TRANSIENT, FailureClass.PERMANENT, FailureClass.UNKNOWN, FailureClass.CONTROL


def by_name(kind: type, error: BaseException) -> Classified | None:
    """What is known about ``error`` by the name of ``kind``, one of its ancestors; None where nothing is."""
    entry = KNOWN.get(f"{kind.__module__}.{kind.__qualname__}")
    if entry is None or isinstance(entry, FailureClass):
        return None if entry is None else Classified(entry)
    return entry(error)


def _by_url_reason(error: BaseException) -> Classified | None:
    """urllib wraps what really happened once."""
    reason = attribute(error, "reason")
    if not isinstance(reason, BaseException) or reason is error:
        return Classified(_T)
    if any(kind.__qualname__ == "URLError" for kind in type(reason).__mro__):
        return Classified(_U)
    return next((found for kind in type(reason).__mro__ if (found := by_name(kind, reason))), Classified(_U))


def _table() -> Iterator[tuple[str, FailureClass | Rule]]:
    for module, names in _NAMES.items():
        for entry, listed in names.items():
            for name in listed.split():
                yield f"{module}.{name}", entry
    for module in _DBAPI:
        for name, found in _PEP_249.items():
            yield f"{module}.{name}", found
    for name, found in _PEP_249.items():
        yield f"sqlalchemy.exc.{name}", unless_cut_off(found)
    for module in ("stripe.error", "stripe._error"):
        yield f"{module}.StripeError", by_answer
        yield f"{module}.RateLimitError", by_answer
        yield f"{module}.APIConnectionError", _T
        for name in ("CardError", "InvalidRequestError", "AuthenticationError", "PermissionError", "IdempotencyError"):
            yield f"{module}.{name}", _P
    for module in ("openai", "anthropic"):
        yield f"{module}.APIConnectionError", _T
        yield f"{module}.APIStatusError", by_answer


_PEP_249: dict[str, FailureClass] = {
    "OperationalError": _T,
    "InterfaceError": _T,
    "IntegrityError": _P,
    "ProgrammingError": _P,
    "DataError": _P,
    "NotSupportedError": _P,
}
_DBAPI = (
    "psycopg", "psycopg2", "pymysql.err", "MySQLdb", "mysql.connector.errors", "sqlite3",
    "django.db.utils",
)  # fmt: skip

_NAMES: dict[str, dict[FailureClass | Rule, str]] = {
    "builtins": {
        _C: "SystemExit KeyboardInterrupt GeneratorExit",
        _T: "ConnectionError TimeoutError InterruptedError BlockingIOError",
        _P: "ArithmeticError AssertionError AttributeError ImportError LookupError NameError NotImplementedError RecursionError "
        "ReferenceError SyntaxError TypeError ValueError",
        by_errno: "OSError",
    },
    "asyncio.exceptions": {_T: "TimeoutError IncompleteReadError"},
    "concurrent.futures._base": {_T: "TimeoutError"},
    "multiprocessing.context": {_T: "TimeoutError"},
    "subprocess": {_T: "TimeoutExpired"},
    "socket": {by_resolver: "gaierror", _U: "herror"},
    # Their numbers are no errno.
    "ssl": {_T: "SSLEOFError SSLZeroReturnError SSLSyscallError", _U: "SSLError"},
    "http.client": {_T: "IncompleteRead BadStatusLine", _P: "InvalidURL"},
    "urllib.error": {by_answer: "HTTPError", _by_url_reason: "URLError", _T: "ContentTooShortError"},
    "smtplib": {
        _T: "SMTPServerDisconnected",
        _P: "SMTPNotSupportedError",
        by_smtp_code: "SMTPResponseException",
        by_smtp_recipients: "SMTPRecipientsRefused",
        _U: "SMTPException",
    },
    "celery_guard.errors": {
        _C: "Interruption",
        _T: "StoreUnavailableError KeyBusy",
        _P: "ConfigurationError EnqueueError JobFailed PayloadVersionError SnapshotExpired",
    },
    "celery.exceptions": {
        _C: "TaskPredicate",
        _T: "TimeoutError",
        _P: "MaxRetriesExceededError ImproperlyConfigured SecurityError ChordError",
    },
    "billiard.exceptions": {_C: "Terminated", _T: "SoftTimeLimitExceeded TimeLimitExceeded"},
    "greenlet": {_C: "GreenletExit"},
    "gevent.timeout": {_T: "Timeout"},
    "kombu.exceptions": {_T: "OperationalError LimitExceeded", _P: "SerializationError SerializerNotInstalled"},
    "amqp.exceptions": {
        _T: "RecoverableConnectionError RecoverableChannelError MessageNacked",
        _P: "IrrecoverableChannelError",
    },
    "redis.exceptions": {
        _T: "ConnectionError TimeoutError BusyLoadingError ReadOnlyError OutOfMemoryError ClusterDownError TryAgainError AskError "
        "WatchError LockError",
        _P: "AuthenticationError AuthorizationError NoPermissionError DataError",
        _U: "ResponseError",
    },
    "sqlalchemy.exc": {
        _T: "TimeoutError DisconnectionError",
        unless_cut_off(_U): "DBAPIError",
        _U: "PendingRollbackError",
        _P: "ArgumentError InvalidRequestError CompileError",
    },
    "sqlalchemy.orm.exc": {_T: "StaleDataError"},
    "asyncpg.exceptions": {
        _T: "PostgresConnectionError TransactionRollbackError InsufficientResourcesError OperatorInterventionError",
        _P: "IntegrityConstraintViolationError SyntaxOrAccessError DataError",
    },
    "requests.exceptions": {
        _T: "ConnectionError Timeout ChunkedEncodingError RetryError",
        _P: "InvalidURL MissingSchema InvalidSchema InvalidHeader URLRequired TooManyRedirects StreamConsumedError",
        by_answer: "HTTPError",
        # The other side sent something that is no JSON, often the error page of a proxy.
        _U: "SSLError JSONDecodeError",
    },
    "urllib3.exceptions": {
        _T: "TimeoutError ProtocolError PoolError ProxyError IncompleteRead InvalidChunkLength",
        _P: "LocationValueError InvalidHeader",
        _U: "SSLError HostChangedError",
    },
    "httpx": {
        _T: "TransportError",
        _P: "UnsupportedProtocol LocalProtocolError TooManyRedirects InvalidURL",
        by_answer: "HTTPStatusError",
    },
    "httpcore": {
        _T: "NetworkError TimeoutException RemoteProtocolError ProxyError",
        _P: "UnsupportedProtocol LocalProtocolError",
    },
    "aiohttp.client_exceptions": {
        _T: "ClientConnectionError ClientPayloadError",
        _P: "InvalidURL NonHttpUrlClientError TooManyRedirects ServerFingerprintMismatch",
        _U: "ClientSSLError",
        by_answer: "ClientResponseError",
    },
    "botocore.exceptions": {
        _T: "ConnectionError HTTPClientError",
        _P: "NoCredentialsError PartialCredentialsError ParamValidationError NoRegionError",
        by_aws_code: "ClientError",
    },
    "grpc": {by_grpc_code: "RpcError", _T: "FutureTimeoutError"},
    "google.api_core.exceptions": {_T: "RetryError Aborted", by_answer: "GoogleAPICallError"},
}

#: Every failure that is known by name.
KNOWN: dict[str, FailureClass | Rule] = dict(_table())
