"""Encryption of what is kept of a job: its messages, its result, and the words of its failures.

The cipher is Fernet, of the package ``cryptography`` (AES-128-CBC with HMAC-SHA-256); nothing of it is made here. What stands where the plain
text would is a text that says which key it takes::

    3f9a0c51d2e87b46:gAAAAABm...        <key id>:<token>

    a message   [[], {"guard_encrypted": "<key id>:<token>"}, {}]    arguments, and what hangs on the job in Celery
    a result    <key id>:<token>, under a content type of its own
    a failure   guard_encrypted:<key id>:<token>                     message and traceback

A key's id is drawn from its hash, so two processes that have the same key call it by the same name. Inside the token stands what it is
of ("message 5f0c..."): a ciphertext that was put into another row does not open there.

The first key encrypts, every key decrypts. A ciphertext whose key is not among them is not damaged: it waits for a process that has the key.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from importlib.util import find_spec
from typing import Any

from celery_guard.errors import ConfigurationError, EncryptionKeyError, PayloadError

from .envelope import ENCRYPTED, HEADER, PLAIN
from .row import StoredFailure, StoredPayload, StoredResult
from .settlement import Settlement

__all__ = [
    "ID_LENGTH",
    "MARK",
    "MESSAGE",
    "MESSAGE_END",
    "NO_ENCRYPTION",
    "RESULT",
    "TEXT",
    "Encryption",
    "ciphertext_in",
    "concealed",
    "key_of",
    "new_key",
]

#: What names a ciphertext, wherever it stands.
MARK = "guard_encrypted"
#: What an encrypted message's body begins and ends with; key id and token are between.
MESSAGE = f'[[], {{"{MARK}": "'
MESSAGE_END = '"}, {}]'
#: The content type of an encrypted result.
RESULT = "application/x-guard-encrypted"
#: No such encoding exists: whoever does not know the content type fails, instead of taking the ciphertext for a value.
_RESULT_ENCODING = "guard-encrypted"
#: What an encrypted failure's message begins with.
TEXT = f"{MARK}:"

#: How many characters the id of a key has.
ID_LENGTH = 16
_CIPHERTEXT = re.compile(rf"[0-9a-f]{{{ID_LENGTH}}}:[A-Za-z0-9_=-]+")


class Encryption:
    """The keys of one process, the first of which encrypts; and whether it encrypts at all.

    Raises:
        ConfigurationError: a key is none of Fernet's, two are the same, or ``cryptography`` is not installed.
    """

    def __init__(self, keys: Sequence[str | bytes] = (), *, on: bool = False) -> None:
        self._fernets = {_id_of(key): _fernet(place, key) for place, key in enumerate(keys)}
        if len(self._fernets) < len(keys):
            raise ConfigurationError("encryption_keys: one key is there twice. To repair: name each key once.")
        if on and not keys:
            raise ConfigurationError("encrypt is on, and encryption_keys names no key. To repair: name one.")
        self.on = on

    @property
    def keys(self) -> tuple[str, ...]:
        """The ids of the keys, the one that encrypts first."""
        return tuple(self._fernets)

    def knows(self, key: str) -> bool:
        """Whether there is a key of this id."""
        return key in self._fernets

    # -- messages -----------------------------------------------------------------------------------------------------

    def encrypt_message(
        self, id: str, body: bytes, headers: Mapping[str, Any], delivery: Mapping[str, Any]
    ) -> tuple[bytes, dict[str, Any], dict[str, Any]]:
        """The message with its body encrypted. Its envelope has to say so: a reader who takes it for plain would call the task without arguments."""
        how = {"type": delivery["content_type"], "encoding": delivery["content_encoding"]}
        plain = {name: value for name, value in headers.items() if name != "compression"}
        if headers.get("compression"):
            how["compression"] = headers["compression"]
        text = self._encrypt(f"message {id}", how, body)
        changed = {**delivery, "content_type": "application/json", "content_encoding": "utf-8"}
        return f"{MESSAGE}{text}{MESSAGE_END}".encode(), plain, changed

    def encrypted(self, id: str, payload: StoredPayload) -> StoredPayload:
        """A plain message of the guard's as it is stored, its envelope saying how; the same where nothing is encrypted here."""
        body, headers, delivery = payload.body, json.loads(payload.headers), json.loads(payload.delivery)
        if self.on:
            body, headers, delivery = self.encrypt_message(id, body, headers, delivery)
        headers[HEADER] = {**headers[HEADER], "version": ENCRYPTED if self.on else PLAIN}
        return StoredPayload(body, json.dumps(headers), json.dumps(delivery))

    def decrypt_message(self, id: str, payload: StoredPayload) -> StoredPayload:
        """The message as Celery built it; itself where it is not encrypted. Raises ``EncryptionKeyError``, ``PayloadError`` (damaged)."""
        text = _text_of(payload.body)
        if text is None:
            return payload
        opened, how = self.open_message(id, text)
        headers, delivery = json.loads(payload.headers), json.loads(payload.delivery)
        if "compression" in how:
            headers["compression"] = how["compression"]
        delivery |= {"content_type": how["type"], "content_encoding": how["encoding"]}
        return StoredPayload(opened, json.dumps(headers), json.dumps(delivery))

    def open_message(self, id: str, text: str) -> tuple[bytes, Mapping[str, str]]:
        """The body in a message's ciphertext, and how that is encoded: ``type``, ``encoding`` and maybe ``compression``."""
        return self._decrypt(f"message {id}", text)

    # -- results and failures -----------------------------------------------------------------------------------------

    def encrypt_result(self, id: str, result: StoredResult | None) -> StoredResult | None:
        """The result as it is stored."""
        if result is None or not self.on:
            return result
        how = {"type": result.content_type, "encoding": result.content_encoding}
        return StoredResult(self._encrypt(f"result {id}", how, result.body).encode(), RESULT, _RESULT_ENCODING)

    def decrypt_result(self, id: str, result: StoredResult | None) -> StoredResult | None:
        """The result of job ``id`` as it was encoded. Raises ``EncryptionKeyError``, ``PayloadError`` (damaged)."""
        if result is None or result.content_type != RESULT:
            return result
        body, how = self._decrypt(f"result {id}", result.body.decode("ascii", "replace"))
        return StoredResult(body, how["type"], how["encoding"])

    def encrypt_failure(self, id: str, failure: StoredFailure) -> StoredFailure:
        """The record of a failed attempt, its message and traceback encrypted."""
        if not self.on:
            return failure
        words = json.dumps({"message": failure.message, "traceback": failure.traceback}).encode()
        return replace(failure, message=TEXT + self._encrypt(f"failure {id}", {}, words), traceback="")

    def decrypt_failure(self, id: str, failure: StoredFailure | None) -> StoredFailure | None:
        """The record as it was. Raises ``EncryptionKeyError``, ``PayloadError`` (damaged)."""
        if failure is None or not failure.message.startswith(TEXT):
            return failure
        words, _ = self._decrypt(f"failure {id}", failure.message.removeprefix(TEXT))
        return replace(failure, **json.loads(words))

    def encrypt_settlement(self, settlement: Settlement, *, words: bool) -> Settlement:
        """What settle writes: with its result encrypted, and with ``words`` what the failure says."""
        if not self.on:
            return settlement
        failure = settlement.failure
        if failure is not None and words:
            failure = self.encrypt_failure(settlement.id, failure)
        return replace(settlement, result=self.encrypt_result(settlement.id, settlement.result), failure=failure)

    # -- rotation -----------------------------------------------------------------------------------------------------

    def renewed(self, text: str) -> str:
        """The same under the first key. Raises ``EncryptionKeyError``, ``PayloadError`` (damaged)."""
        from cryptography.fernet import InvalidToken, MultiFernet

        key, _, token = text.partition(":")
        fernet, current = self._fernet_of(key), self.keys[0]
        try:
            renewed = MultiFernet([self._fernets[current], fernet]).rotate(token)
        except InvalidToken:
            raise _damaged("It") from None
        return f"{current}:{renewed.decode('ascii')}"

    # -- within -------------------------------------------------------------------------------------------------------

    def _encrypt(self, about: str, how: Mapping[str, str], data: bytes) -> str:
        key, fernet = next(iter(self._fernets.items()))
        head = json.dumps({"of": about, **how}).encode()
        token = fernet.encrypt(head + b"\n" + data).decode("ascii")
        return f"{key}:{token}"

    def _decrypt(self, about: str, text: str) -> tuple[bytes, Mapping[str, str]]:
        from cryptography.fernet import InvalidToken

        key, _, token = text.partition(":")
        try:
            head, _, data = self._fernet_of(key).decrypt(token).partition(b"\n")
        except InvalidToken:
            raise _damaged(f"The {about}") from None
        how = json.loads(head)
        if how["of"] != about:
            raise PayloadError(
                f"The {about} holds the ciphertext of another row: {how['of']}. It was put there by hand."
            )
        return data, how

    def _fernet_of(self, key: str) -> Any:
        if key not in self._fernets:
            has = f"those of {', '.join(self.keys)}" if self._fernets else "none"
            raise EncryptionKeyError(
                f"It is encrypted with the key {key}; this process has {has}. To repair: add that key to encryption_keys here.",
                key,
            )
        return self._fernets[key]


#: No key, and nothing is encrypted.
NO_ENCRYPTION = Encryption()


def new_key() -> str:
    """A new key, from the system's random numbers. Raises ``ConfigurationError`` where ``cryptography`` is not installed."""
    _need_cryptography()
    from cryptography.fernet import Fernet

    return Fernet.generate_key().decode("ascii")


def ciphertext_in(args: Any, kwargs: Any) -> str | None:
    """The ciphertext in an encrypted message's arguments; None where they are plain."""
    if args or not isinstance(kwargs, Mapping) or [*kwargs] != [MARK]:
        return None
    text = kwargs[MARK]
    return text if isinstance(text, str) and _CIPHERTEXT.fullmatch(text) else None


def key_of(payload: StoredPayload) -> str | None:
    """The id of the key that a message is encrypted with; None where it is plain."""
    text = _text_of(payload.body)
    return None if text is None else text[:ID_LENGTH]


def concealed(failure: StoredFailure) -> StoredFailure:
    """The record as people see it who were not given the keys: that its words are encrypted, and with which key."""
    if not failure.message.startswith(TEXT):
        return failure
    key = failure.message.removeprefix(TEXT)[:ID_LENGTH]
    return replace(failure, message=f"(encrypted with the key {key})", traceback="")


def _text_of(body: bytes) -> str | None:
    start, end = MESSAGE.encode(), MESSAGE_END.encode()
    if not (body.startswith(start) and body.endswith(end)):
        return None
    text = body[len(start) : -len(end)].decode("ascii", "replace")
    return text if _CIPHERTEXT.fullmatch(text) else None


def _id_of(key: str | bytes) -> str:
    data = key.encode() if isinstance(key, str) else key
    return hashlib.sha256(b"celery-guard key id\0" + data).hexdigest()[:ID_LENGTH]


def _fernet(place: int, key: str | bytes) -> Any:
    _need_cryptography()
    from cryptography.fernet import Fernet

    try:
        return Fernet(key)
    except (ValueError, TypeError):
        # without the error itself, which may quote the key
        raise ConfigurationError(
            f"encryption_keys: number {place + 1} is no key: found {len(key)} characters, expected 32 random bytes as URL-safe base64. "
            "To repair: make one with `celery-guard keys new`."
        ) from None


def _need_cryptography() -> None:
    if find_spec("cryptography") is None:
        raise ConfigurationError(
            "Keys are Fernet's, and cryptography is not installed. To repair: pip install 'celery-guard[encryption]'."
        )


def _damaged(what: str) -> PayloadError:
    return PayloadError(f"{what} does not open with the key that it names: it was damaged in the store, or on its way.")
