"""Rules that look at an exception for what it says about trying again: an errno, a status, a code.

Each answers None where the exception does not say, and then its ancestors are asked.
"""

from __future__ import annotations

import errno
import socket
from collections.abc import Callable, Mapping
from typing import Any, Union

from .failure_class import Classified, FailureClass
from .foreign import attribute, outcome_of
from .http_status import by_status

__all__ = [
    "Rule",
    "by_aws_code",
    "by_errno",
    "by_grpc_code",
    "by_resolver",
    "by_smtp_code",
    "by_smtp_recipients",
    "unless_cut_off",
]

_T, _H, _P, _U = FailureClass.TRANSIENT, FailureClass.THROTTLED, FailureClass.PERMANENT, FailureClass.UNKNOWN

Rule = Callable[[BaseException], Union[Classified, None]]


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


def _errnos(text: str) -> frozenset[int]:
    return frozenset(getattr(errno, name) for name in text.split() if hasattr(errno, name))


_PASSING_ERRNO = _errnos(
    "EADDRINUSE EADDRNOTAVAIL EAGAIN EBUSY ECONNABORTED ECONNREFUSED ECONNRESET EDEADLK EDQUOT EHOSTDOWN EHOSTUNREACH EINTR "
    "EIO EMFILE ENETDOWN ENETRESET ENETUNREACH ENFILE ENOBUFS ENOLCK ENOMEM ENOSPC ENOTCONN EPIPE ESHUTDOWN ESTALE ETIMEDOUT "
    "ETXTBSY EWOULDBLOCK"
)
_STAYING_ERRNO = _errnos(
    "E2BIG EACCES EBADF EEXIST EFAULT EFBIG EINVAL EISDIR ELOOP ENAMETOOLONG ENODEV ENOENT ENOEXEC ENOSYS ENOTDIR ENOTEMPTY "
    "ENOTSUP EPERM EROFS EXDEV"
)

_AWS_THROTTLES = _words(
    "BandwidthLimitExceeded EC2ThrottledException LimitExceededException PriorRequestNotComplete "
    "ProvisionedThroughputExceededException RequestLimitExceeded RequestThrottled RequestThrottledException SlowDown "
    "ThrottledException Throttling ThrottlingException TooManyRequestsException"
)
_AWS_PASSING = _words(
    "InternalError InternalFailure InternalServerError RequestTimeout RequestTimeoutException ServiceUnavailable "
    "TransactionInProgressException"
)

_GRPC_CODES = {
    _T: _words("ABORTED DEADLINE_EXCEEDED UNAVAILABLE"),
    _H: _words("RESOURCE_EXHAUSTED"),
    _P: _words(
        "ALREADY_EXISTS DATA_LOSS FAILED_PRECONDITION INVALID_ARGUMENT NOT_FOUND OUT_OF_RANGE PERMISSION_DENIED UNAUTHENTICATED "
        "UNIMPLEMENTED"
    ),
}


def by_errno(error: BaseException) -> Classified | None:
    """By the number of the operating system."""
    number = attribute(error, "errno")
    if not isinstance(number, int):
        return None
    if number in _PASSING_ERRNO:
        return Classified(_T)
    return Classified(_P) if number in _STAYING_ERRNO else None


def by_resolver(error: BaseException) -> Classified:
    """A name that could not be resolved: numbers of its own, which are no errno."""
    return Classified(_T if attribute(error, "errno") == socket.EAI_AGAIN else _U)


def by_smtp_code(error: BaseException) -> Classified:
    """By the mail server's answer: 4xx passes, 5xx stays."""
    return _smtp(attribute(error, "smtp_code"))


def by_smtp_recipients(error: BaseException) -> Classified:
    """Every recipient was refused; the worst answer counts."""
    refused = attribute(error, "recipients")
    answers = list(refused.values()) if isinstance(refused, Mapping) else []
    found = [_smtp(answer[0] if isinstance(answer, tuple) and answer else None).failure_class for answer in answers]
    return Classified(next((worst for worst in (_P, _U, _T) if worst in found), _U))


def _smtp(code: Any) -> Classified:
    if not isinstance(code, int):
        return Classified(_U)
    return Classified(_T if 400 <= code < 500 else _P if 500 <= code < 600 else _U)


def by_aws_code(error: BaseException) -> Classified | None:
    """By the error code of an AWS service, and the status of its answer."""
    response = attribute(error, "response")
    if not isinstance(response, Mapping):
        return None
    told, meta = response.get("Error"), response.get("ResponseMetadata")
    code = str(told.get("Code")) if isinstance(told, Mapping) else ""
    meta = meta if isinstance(meta, Mapping) else {}
    status, headers = meta.get("HTTPStatusCode"), meta.get("HTTPHeaders")
    headers = headers if isinstance(headers, Mapping) else {}
    found = by_status(status, lambda name: headers.get(name.lower())) if isinstance(status, int) else None
    if code in _AWS_THROTTLES:
        return Classified(_H, found.floor if found else None)
    return Classified(_T) if code in _AWS_PASSING else found


def by_grpc_code(error: BaseException) -> Classified | None:
    """By the status of a gRPC call."""
    name = attribute(outcome_of(error, "code"), "name")
    if not isinstance(name, str):
        return None
    return Classified(next((found for found, names in _GRPC_CODES.items() if name in names), _U))


def unless_cut_off(otherwise: FailureClass) -> Rule:
    """SQLAlchemy says whether the connection was lost under the statement."""
    return lambda error: Classified(_T if attribute(error, "connection_invalidated") is True else otherwise)
