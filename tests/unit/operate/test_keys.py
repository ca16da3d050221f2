"""``guard keys``, typed."""

from __future__ import annotations

import json
import os

import pytest
from celery import Celery

from celery_guard.integrations.celery.runtime import runtime_of
from celery_guard.job.ciphertext import Ciphertext, CiphertextKind
from celery_guard.job.encryption import Encryption

from .shop import Canned, Run

if not os.environ.get("CI"):
    pytest.importorskip("cryptography", reason="pip install 'celery-guard[encryption]'")

OLD = "b2xkLW9sZC1vbGQtb2xkLW9sZC1vbGQtb2xkLW9sZC0="
NEW = "bmV3LW5ldy1uZXctbmV3LW5ldy1uZXctbmV3LW5ldy0="


def test_a_new_key_is_one_that_can_be_used(run: Run) -> None:
    printed = run("keys", "new").output.strip()
    assert len(Encryption([printed]).keys) == 1
    assert run("keys", "new").output.strip() != printed


def test_the_status_says_what_takes_a_key_that_is_missing(run: Run, app: Celery) -> None:
    runtime_of(app).__dict__["encryption"] = Encryption([NEW], on=True)
    texts = [Ciphertext(CiphertextKind.RESULT, "7", 0, "0" * 16)]
    done = run("keys", "status", "--json", store=Canned(ciphertexts=(texts, None)))
    assert done.exit_code == 1
    [mine, missing] = json.loads(done.stdout)
    assert (mine["here"], mine["messages"]) == ("encrypts", 0)
    assert missing == {"key": "0" * 16, "here": "missing", "messages": 0, "results": 1, "failures": 0}
    assert run("keys", "status", store=Canned(ciphertexts=([], None))).exit_code == 0


def test_a_rotation_says_how_much_was_renewed_and_what_was_left(run: Run, app: Celery) -> None:
    runtime_of(app).__dict__["encryption"] = both = Encryption([NEW, OLD], on=True)
    body, _, _ = Encryption([OLD], on=True).encrypt_message(
        "7", b"[]", {}, {"content_type": "a", "content_encoding": "b"}
    )
    text = Ciphertext(CiphertextKind.MESSAGE, "7", 0, json.loads(body)[1]["guard_encrypted"])
    store = Canned(ciphertexts=([text], None), reencrypt=True)
    done = run("keys", "rotate", "--reason", "yearly", store=store)
    assert (done.exit_code, done.stderr.split(",")[0]) == (0, "1 renewed")
    [written] = [args for name, args, _ in store.asked if name == "reencrypt"]
    assert written[1].startswith(both.keys[0])
    lost = Ciphertext(CiphertextKind.MESSAGE, "8", 0, "0" * 16 + ":AAAA")
    done = run("keys", "rotate", "--reason", "yearly", store=Canned(ciphertexts=([lost], None), reencrypt=True))
    assert (done.exit_code, "0000000000000000 is not known here" in done.stderr) == (1, True)
