"""Keys: what takes which, and all of it under the first; killed half-way and begun again it ends the same."""

from __future__ import annotations

import os

import pytest

from celery_guard import ConfigurationError, NotAllowed, ReasonMissing
from celery_guard.flow.admin.actor import Action, Actor, Role, by_role
from celery_guard.flow.admin.audit import Authority
from celery_guard.flow.admin.keys import Keys, KeyUse, Rotated, unknown_keys
from celery_guard.job.audit import Outcome
from celery_guard.job.encryption import MESSAGE, MESSAGE_END, NO_ENCRYPTION, Encryption, key_of
from celery_guard.job.row import StoredPayload
from celery_guard.store.protocol import Store
from celery_guard.testing.conformance.builders import new_job
from celery_guard.testing.conformance.moves import accept

if not os.environ.get("CI"):
    pytest.importorskip("cryptography", reason="pip install 'celery-guard[encryption]'")

OLD = "b2xkLW9sZC1vbGQtb2xkLW9sZC1vbGQtb2xkLW9sZC0="
NEW = "bmV3LW5ldy1uZXctbmV3LW5ldy1uZXctbmV3LW5ldy0="
LOST = "bG9zdGxvc3Rsb3N0bG9zdGxvc3Rsb3N0bG9zdGxvc3Q="
DELIVERY = {"content_type": "application/json", "content_encoding": "utf-8"}

ANN = Actor("ann")
both = Encryption([NEW, OLD], on=True)
old, new, lost = (Encryption([key], on=True) for key in (OLD, NEW, LOST))


def keys(store: Store, encryption: Encryption = both) -> Keys:
    return Keys(store, Authority(store, by_role, 3), encryption)


def sent(store: Store, encryption: Encryption, body: bytes | None = None) -> str:
    """A job whose message is encrypted so."""
    job = new_job()
    encrypted, _, _ = encryption.encrypt_message(job.id, b"[[7], {}, {}]", {}, DELIVERY)
    job = new_job(id=job.id, payload=StoredPayload(body or encrypted, "{}", "{}"))
    accept(store, job)
    return job.id


def test_what_takes_each_key_is_counted_also_a_key_that_is_not_here(store: Store) -> None:
    for encryption in (old, old, lost, NO_ENCRYPTION):
        sent(store, encryption) if encryption.on else accept(store, new_job())
    assert keys(store).status(by=Actor("eve", Role.VIEWER)) == [
        KeyUse(new.keys[0], "encrypts"), KeyUse(old.keys[0], "decrypts", messages=2), KeyUse(lost.keys[0], "missing", messages=1),
    ]  # fmt: skip


def test_a_rotation_puts_all_under_the_first_key_and_says_what_it_left(store: Store) -> None:
    ids = [sent(store, old) for _ in range(3)]
    gone = sent(store, lost)
    bad = sent(store, old, f"{MESSAGE}{old.keys[0]}:AAAA{MESSAGE_END}".encode())
    told: list[int] = []
    done = keys(store).rotate(by=ANN, reason="yearly", progress=told.append)
    assert done == Rotated(3, {lost.keys[0]: 1}, (f"message of job {bad}",))
    assert told[-1] == 3
    for id in ids:
        payload = store.payload(id)
        assert payload is not None
        assert new.decrypt_message(id, payload).body == b"[[7], {}, {}]"
    assert keys(store).rotate(by=ANN, reason="again").renewed == 0
    assert [use.key for use in keys(store).status(by=ANN) if use.here == "missing"] == [lost.keys[0]]
    assert gone


def test_a_rotation_that_is_killed_at_any_write_is_begun_again_and_ends_the_same(store: Store) -> None:
    ids = [sent(store, old) for _ in range(4)]
    for survives in (0, 1, 2):
        with pytest.raises(KeyboardInterrupt):
            keys(Dying(store, survives)).rotate(by=ANN, reason="yearly")  # type: ignore[arg-type]
    assert keys(store).rotate(by=ANN, reason="yearly").renewed == 1
    assert [use.messages for use in keys(store).status(by=ANN)] == [len(ids), 0]


class Dying:
    """A store whose process is killed after so many writes of a rotation."""

    def __init__(self, store: Store, writes: int) -> None:
        self._store, self._left = store, writes

    def reencrypt(self, *given: object) -> bool:
        if not self._left:
            raise KeyboardInterrupt
        self._left -= 1
        return self._store.reencrypt(*given)  # type: ignore[arg-type]

    def __getattr__(self, name: str) -> object:
        return getattr(self._store, name)


def test_a_rotation_is_an_operators_takes_a_reason_and_is_in_the_audit(store: Store) -> None:
    with pytest.raises(NotAllowed):
        keys(store).rotate(by=Actor("eve", Role.VIEWER), reason="x")
    with pytest.raises(ReasonMissing):
        keys(store).rotate(by=ANN, reason=" ")
    sent(store, old)
    keys(store).rotate(by=ANN, reason="yearly")
    row = store.audited(action=Action.KEYS_ROTATE.value)[0]
    assert (row.actor, row.reason, row.detail) == ("ann", "yearly", "1 renewed")


def test_keys_are_no_tenants_so_its_actor_neither_counts_nor_rotates_them(store: Store) -> None:
    id = sent(store, old)
    eve = Actor("eve", Role.ADMIN, tenant="acme")
    with pytest.raises(NotAllowed, match="sees no other"):
        keys(store).status(by=eve)
    with pytest.raises(NotAllowed, match="sees no other"):
        keys(store).rotate(by=eve, reason="curious")
    payload = store.payload(id)
    assert payload is not None
    assert key_of(payload) == old.keys[0]
    assert [row.outcome for row in store.audited(actor="eve")] == [Outcome.REFUSED, Outcome.REFUSED]


def test_without_keys_there_is_nothing_to_rotate_to(store: Store) -> None:
    with pytest.raises(ConfigurationError, match="encryption_keys is not set"):
        keys(store, NO_ENCRYPTION).rotate(by=ANN, reason="x")


def test_a_worker_is_told_which_keys_of_waiting_jobs_it_does_not_have(store: Store) -> None:
    sent(store, old)
    accept(store, new_job())
    assert unknown_keys(store, both) == set()
    assert unknown_keys(store, new) == {old.keys[0]}
    assert unknown_keys(store, NO_ENCRYPTION) == {old.keys[0]}
