"""Encryption on Celery's side: where the keys come from, and an encrypted message made what Celery takes it for."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from celery.utils.imports import symbol_by_name
from pydantic import SecretStr

from celery_guard.errors import ConfigurationError
from celery_guard.job.encryption import NO_ENCRYPTION, Encryption
from celery_guard.settings import Settings

from .capture import decode

__all__ = ["encryption_of", "open_call"]


def encryption_of(settings: Settings) -> Encryption:
    """The keys that the settings name. Raises ``ConfigurationError`` where they are none, or cannot be had."""
    named = settings.encryption_keys
    if named is None:
        return NO_ENCRYPTION
    return Encryption([_plain(key) for key in _had(named)], on=settings.encrypt)


def open_call(encryption: Encryption, id: str, text: str) -> tuple[Any, Any, Any]:
    """(args, kwargs, embed) out of an encrypted message's ciphertext.

    Raises ``EncryptionKeyError`` where its key is not known here; anything else means that it is damaged.
    """
    body, how = encryption.open_message(id, text)
    delivery = {"content_type": how["type"], "content_encoding": how["encoding"]}
    args, kwargs, embed = decode(body, delivery, {"compression": how.get("compression")})
    return args, kwargs, embed


def _had(named: str | Callable[..., Any] | Sequence[Any]) -> Sequence[Any]:
    if isinstance(named, str):
        try:
            named = symbol_by_name(named)
        except (ImportError, AttributeError, ValueError) as error:
            raise ConfigurationError(
                f"encryption_keys: {named!r} cannot be imported ({error}). Name a function, as `shop.secrets:keys`, or the keys themselves."
            ) from error
    found: Any = named() if callable(named) else named
    if (
        not isinstance(found, (list, tuple))
        or not found
        or not all(isinstance(key, (str, bytes, SecretStr)) for key in found)
    ):
        raise ConfigurationError(
            f"encryption_keys: found a value of type {type(found).__name__}, expected a list of one key or more, each a text or bytes."
        )
    return found


def _plain(key: str | bytes | SecretStr) -> str | bytes:
    return key.get_secret_value() if isinstance(key, SecretStr) else key
