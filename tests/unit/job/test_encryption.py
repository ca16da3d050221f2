"""Encryption: the first key encrypts, all decrypt, and a ciphertext says which key it takes and what it is of."""

from __future__ import annotations

import json
import os
from dataclasses import replace

import pytest

from celery_guard import ConfigurationError, EncryptionKeyError, PayloadError
from celery_guard.job.encryption import NO_ENCRYPTION, Encryption, ciphertext_in, concealed, key_of
from celery_guard.job.row import StoredFailure, StoredPayload, StoredResult

if not os.environ.get("CI"):
    pytest.importorskip("cryptography", reason="pip install 'celery-guard[encryption]'")

OLD = "b2xkLW9sZC1vbGQtb2xkLW9sZC1vbGQtb2xkLW9sZC0="
NEW = "bmV3LW5ldy1uZXctbmV3LW5ldy1uZXctbmV3LW5ldy0="

old = Encryption([OLD], on=True)
both = Encryption([NEW, OLD], on=True)
new = Encryption([NEW], on=True)

BODY = b'[["4111"], {}, {"chain": null}]'
HEADERS = {"task": "pay", "id": "7", "compression": "application/x-gzip"}
DELIVERY = {"queue": "q", "content_type": "application/x-msgpack", "content_encoding": "binary"}
RESULT = StoredResult(b'{"card": "4111"}', "application/json", "utf-8")
FAILURE = StoredFailure("permanent", "ValueError", "bad card 4111", "Traceback ...", "cause", "worker")


def message(encryption: Encryption, id: str = "7") -> StoredPayload:
    body, headers, delivery = encryption.encrypt_message(id, BODY, HEADERS, DELIVERY)
    return StoredPayload(body, json.dumps(headers), json.dumps(delivery))


def test_a_message_comes_back_as_it_was_and_shows_nothing_meanwhile() -> None:
    stored = message(old)
    assert b"4111" not in stored.body
    assert "compression" not in json.loads(stored.headers)
    opened = old.decrypt_message("7", stored)
    assert (opened.body, json.loads(opened.headers), json.loads(opened.delivery)) == (BODY, HEADERS, DELIVERY)


def test_an_encrypted_message_is_json_whose_only_argument_is_the_ciphertext() -> None:
    """So every transport and every version of Celery carries it, and a task without the guard is called with an argument it does not know."""
    stored = message(old)
    args, kwargs, _embed = json.loads(stored.body)
    assert ciphertext_in(args, kwargs) == f"{old.keys[0]}:{kwargs['guard_encrypted'].partition(':')[2]}"
    assert json.loads(stored.delivery)["content_type"] == "application/json"


@pytest.mark.parametrize(
    ("args", "kwargs"),
    [
        ([], {}), ([1], {"guard_encrypted": "0123456789abcdef:AA=="}), ([], {"guard_encrypted": "AA=="}), ([], {"guard_encrypted": 7}),
        ([], {"guard_encrypted": "0123456789abcdef:AA==", "more": 1}), ([], {"card": "4111"}),
    ],
)  # fmt: skip
def test_what_is_no_ciphertext_is_a_plain_call(args: list[object], kwargs: dict[str, object]) -> None:
    assert ciphertext_in(args, kwargs) is None


def test_the_first_key_encrypts_and_every_key_decrypts() -> None:
    assert both.keys == (*new.keys, *old.keys)
    assert key_of(message(both)) == new.keys[0]
    assert both.decrypt_message("7", message(old)).body == BODY
    assert new.decrypt_message("7", message(both)).body == BODY


@pytest.mark.parametrize("reader", [new, NO_ENCRYPTION], ids=["another key", "no key"])
def test_what_takes_a_key_that_is_not_here_says_which(reader: Encryption) -> None:
    result, failure = old.encrypt_result("7", RESULT), old.encrypt_failure("7", FAILURE)
    for read in (
        lambda: reader.decrypt_message("7", message(old)),
        lambda: reader.decrypt_result("7", result),
        lambda: reader.decrypt_failure("7", failure),
    ):
        with pytest.raises(EncryptionKeyError, match=old.keys[0]) as caught:
            read()
        assert caught.value.key == old.keys[0]


def test_a_result_and_a_failure_come_back_as_they_were_and_show_nothing_meanwhile() -> None:
    result, failure = old.encrypt_result("7", RESULT), old.encrypt_failure("7", FAILURE)
    assert result is not None
    assert b"4111" not in result.body
    assert "4111" not in repr(failure)
    assert (failure.type_name, failure.cause) == (FAILURE.type_name, FAILURE.cause)
    assert old.decrypt_result("7", result) == RESULT
    assert old.decrypt_failure("7", failure) == FAILURE


def test_what_is_plain_is_read_as_it_is() -> None:
    plain = StoredPayload(BODY, json.dumps(HEADERS), json.dumps(DELIVERY))
    assert old.decrypt_message("7", plain) is plain
    assert key_of(plain) is None
    assert old.decrypt_result("7", RESULT) is RESULT
    assert old.decrypt_failure("7", FAILURE) is FAILURE
    assert concealed(FAILURE) is FAILURE


def test_a_process_that_has_keys_and_does_not_encrypt_writes_plain() -> None:
    reads = Encryption([OLD])
    assert reads.encrypt_result("7", RESULT) is RESULT
    assert reads.encrypt_failure("7", FAILURE) is FAILURE
    assert reads.decrypt_message("7", message(old)).body == BODY


def test_a_ciphertext_does_not_open_in_the_row_of_another_job() -> None:
    with pytest.raises(PayloadError, match="another row"):
        old.decrypt_message("8", message(old))
    with pytest.raises(PayloadError, match="another row"):
        old.decrypt_result("8", old.encrypt_result("7", RESULT))


def test_a_ciphertext_that_was_changed_does_not_open() -> None:
    stored = message(old)
    place = len(stored.body) // 2
    other = b"A" if stored.body[place : place + 1] != b"A" else b"B"
    with pytest.raises(PayloadError, match="damaged"):
        old.decrypt_message("7", replace(stored, body=stored.body[:place] + other + stored.body[place + 1 :]))


def test_people_see_that_words_are_encrypted_and_with_which_key() -> None:
    shown = concealed(old.encrypt_failure("7", FAILURE))
    assert (shown.message, shown.traceback) == (f"(encrypted with the key {old.keys[0]})", "")


def test_a_ciphertext_is_renewed_under_the_first_key() -> None:
    result = old.encrypt_result("7", RESULT)
    assert result is not None
    renewed = both.renewed(result.body.decode())
    assert renewed.partition(":")[0] == new.keys[0]
    assert new.decrypt_result("7", replace(result, body=renewed.encode())) == RESULT
    with pytest.raises(EncryptionKeyError):
        new.renewed(result.body.decode())


@pytest.mark.parametrize("keys", [["short"], [OLD, OLD], [OLD, "ä" * 44]], ids=["short", "twice", "not ASCII"])
def test_keys_that_make_no_sense_are_refused_and_not_printed(keys: list[str]) -> None:
    with pytest.raises(ConfigurationError, match="encryption_keys") as caught:
        Encryption(keys)
    assert not any(key in str(caught.value) for key in keys)
