"""Which errors of Redis pass by themselves, and what the others are called.

A script is done as a whole or not at all, and is safe to repeat; so whatever kept a call from its answer may be met by calling
again: a server that went away, starts, fails over, refuses writes, or is out of memory.
"""

from __future__ import annotations

import re
import ssl

from redis.exceptions import (
    AskError,
    AuthenticationError,
    AuthorizationError,
    ConnectionError,
    NoPermissionError,
    RedisError,
    ResponseError,
    TimeoutError,
)

from celery_guard.errors import COMMAND, StoreSchemaError, StoreUnavailableError

__all__ = ["explained", "is_transient", "word_of"]

#: The first word of the server's answer, where it refuses now what it may do a little later.
_PASSES = {
    "OOM", "READONLY", "LOADING", "MASTERDOWN", "BUSY", "MISCONF", "NOREPLICAS", "CLUSTERDOWN", "TRYAGAIN", "MOVED", "ASK", "UNKILLABLE",
}  # fmt: skip

#: redis-py takes the word off the text, and has a class for it instead.
_WORDS = {
    "OutOfMemoryError": "OOM", "ReadOnlyError": "READONLY", "MasterDownError": "MASTERDOWN", "ClusterDownError": "CLUSTERDOWN",
    "TryAgainError": "TRYAGAIN", "MovedError": "MOVED", "AskError": "ASK", "ClusterCrossSlotError": "CROSSSLOT",
    "NoScriptError": "NOSCRIPT",
}  # fmt: skip

#: Redis 6 says what refused a command in a script in the middle of the text.
_WITHIN = re.compile(rf"-({'|'.join(sorted(_PASSES))}) ")

_VERSION = "GUARDVERSION"

#: Nobody is let in, and nobody will be a little later.
_CLOSED = (AuthenticationError, AuthorizationError, NoPermissionError)


def word_of(error: BaseException) -> str:
    """The word that the server's refusal begins with."""
    if type(error).__name__ in _WORDS:
        return _WORDS[type(error).__name__]
    text = str(error)
    within = _WITHIN.search(text)
    return within[1] if within else text.partition(" ")[0]


def is_transient(error: BaseException) -> bool:
    """Whether the same call may succeed a little later."""
    if isinstance(error, _CLOSED) or _distrusts(error):
        return False
    if isinstance(error, ResponseError):
        return word_of(error) in _PASSES
    return isinstance(error, (ConnectionError, TimeoutError))


def _distrusts(error: BaseException) -> bool:
    """Whether it is the certificate of the server that was refused, here. redis-py says only its words, and leaves the error itself beneath."""
    return isinstance(error, ConnectionError) and isinstance(error.__context__, ssl.SSLCertVerificationError)


def explained(error: BaseException, store: str) -> BaseException:
    """The error as the guard says it; ``store`` names the store without its password."""
    if isinstance(error, _CLOSED) or (
        isinstance(error, ResponseError) and word_of(error) in ("NOAUTH", "WRONGPASS", "NOPERM")
    ):
        return StoreUnavailableError(
            f"The store cannot be opened: {error}. Check the setting store, and what its user may do."
        )
    if _distrusts(error):
        return StoreUnavailableError(
            f"The certificate of the server of the store in {store} is not trusted: {error} Check the setting store: ssl_ca_certs names the file of those who "
            "vouch for it."
        )
    if isinstance(error, ResponseError) and word_of(error) == _VERSION:
        found = str(error).split()[1]
        if found == "none":
            return StoreSchemaError(
                f"The store in {store} is missing: it was never made, or the server has lost what it kept. "
                f"Run `{COMMAND} store upgrade`."
            )
        return StoreSchemaError(_another_version(store, found))
    if isinstance(error, AskError):
        return StoreUnavailableError(
            f"The server of the store in {store} is one node of a cluster, and another one has the store. "
            "Write redis+cluster:// instead of redis://."
        )
    if isinstance(error, RedisError):
        return StoreUnavailableError(
            f"The store in {store} could not do what was asked: {type(error).__name__}: {error}"
        )
    return error


def _another_version(store: str, found: str) -> str:
    from .version import VERSION

    if int(found) > VERSION:
        return (
            f"The store in {store} is of version {found}, newer than this celery-guard, which knows {VERSION}. "
            "Run the release that upgraded it, or a newer one."
        )
    return (
        f"The store in {store} is of version {found}, older than this celery-guard's, {VERSION}. "
        f"Run `{COMMAND} store upgrade`."
    )
