"""What is encrypted in the store: found page by page wherever it stands, and put under another key by compare-and-set."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count

from celery_guard.job.ciphertext import Ciphertext, CiphertextKind
from celery_guard.job.encryption import MESSAGE, MESSAGE_END, RESULT, TEXT
from celery_guard.job.row import StoredResult
from celery_guard.store.protocol import Store

from .builders import dead, failure, new_job, payload, result, retried, succeeded
from .crowd import together
from .moves import accept, claim, found

__all__ = ["TestCiphertexts"]

#: Ids of keys, as long as ids are.
OLD, NEW = "0" * 16, "1" * 16

_numbers = count()


def a_text(key: str = OLD) -> str:
    """A ciphertext, as far as a store can tell one."""
    return f"{key}:gAAAA{next(_numbers):06}-_=="


def message(text: str) -> bytes:
    return f"{MESSAGE}{text}{MESSAGE_END}".encode()


def pages(store: Store, limit: int = 2, but: str | None = None, *, brief: bool = False) -> Iterator[Ciphertext]:
    """All that is found, going on from page to page."""
    place: str | None = None
    while True:
        texts, place = store.ciphertexts(limit, place, but=but, brief=brief)
        yield from texts
        if place is None:
            return


def written(store: Store) -> dict[tuple[str, str, str], str]:
    """A job with every kind of ciphertext, two messages among them, another with a failure, and jobs that are plain: what was written."""
    texts = {name: a_text() for name in ("first", "second", "result", "failure")}
    new, other = new_job(payload=payload(message(texts["first"]))), new_job()
    accept(store, new, other, new_job())
    assert store.settle(retried(claim(store, new.id), payload=payload(message(texts["second"]))))
    accept(store, plain := new_job())
    assert store.settle(succeeded(claim(store, plain.id), result=result(b'"plain"')))
    assert store.settle(
        succeeded(claim(store, new.id), result=StoredResult(texts["result"].encode(), RESULT, "guard-encrypted"))
    )
    assert store.settle(dead(claim(store, other.id), failure=failure(TEXT + texts["failure"])))
    return {
        ("message", new.id, "0"): texts["first"], ("message", new.id, "1"): texts["second"],
        ("result", new.id, "0"): texts["result"], ("failure", other.id, ""): texts["failure"],
    }  # fmt: skip


def named(one: Ciphertext) -> tuple[str, str, str]:
    """What tells it from others; a failure's number is the store's."""
    return one.kind.value, one.job, "" if one.kind is CiphertextKind.FAILURE else str(one.part)


class TestCiphertexts:
    def test_whatever_is_encrypted_is_found_page_by_page_and_what_is_plain_is_not(self, store: Store) -> None:
        assert list(pages(store)) == []
        expected = written(store)
        for limit in (1, 2, 100):
            assert {named(one): one.text for one in pages(store, limit)} == expected

    def test_no_more_than_the_keys_ids_are_read_where_they_are_enough(self, store: Store) -> None:
        expected = written(store)
        assert {named(one): one.text for one in pages(store, brief=True)} == dict.fromkeys(expected, OLD)

    def test_what_is_under_the_key_that_encrypts_is_left_out(self, store: Store) -> None:
        written(store)
        accept(store, new_job(payload=payload(message(a_text(NEW)))))
        assert {one.key for one in pages(store)} == {OLD, NEW}
        assert {one.key for one in pages(store, but=NEW)} == {OLD}
        assert list(pages(store, but=OLD)) == [one for one in pages(store) if one.key == NEW]

    def test_a_text_is_put_in_the_place_of_another_and_nothing_else_changes(self, store: Store) -> None:
        written(store)
        before = {named(one): one for one in pages(store)}
        payloads = {job: store.payload(job) for _, job, _ in before}
        rows = {job: found(store, job) for _, job, _ in before}
        for one in before.values():
            assert store.reencrypt(one, renewed := a_text(NEW))
            [now] = [other for other in pages(store) if named(other) == named(one)]
            assert now.text == renewed
        for job, payload_before in payloads.items():
            now_payload = store.payload(job)
            assert payload_before is not None
            assert now_payload is not None
            assert (now_payload.headers, now_payload.delivery) == (payload_before.headers, payload_before.delivery)
            row, [*failures] = found(store, job), rows[job].failures
            assert (row.state, row.fence, len(row.failures)) == (rows[job].state, rows[job].fence, len(failures))
            assert [one.at for one in row.failures] == [one.at for one in failures]

    def test_a_rotation_that_was_killed_half_way_goes_on_when_it_is_begun_again(self, store: Store) -> None:
        expected = written(store)
        for one in list(pages(store, but=NEW))[:2]:
            assert store.reencrypt(one, a_text(NEW))
        left = list(pages(store, but=NEW))
        assert len(left) == len(expected) - 2
        for one in left:
            assert store.reencrypt(one, a_text(NEW))
        assert list(pages(store, but=NEW)) == []
        assert {named(one) for one in pages(store)} == {*expected}

    def test_a_text_that_has_changed_meanwhile_is_left_as_it_is(self, store: Store) -> None:
        written(store)
        for one in list(pages(store)):
            assert store.reencrypt(one, first := a_text(NEW))
            assert not store.reencrypt(one, a_text(NEW))
            assert [other.text for other in pages(store) if named(other) == named(one)] == [first]

    def test_of_those_who_rotate_at_once_one_writes_each_text(self, store: Store) -> None:
        written(store)
        texts = list(pages(store))
        answers = together(4, lambda who: [store.reencrypt(one, a_text(f"{who + 1}" * 16)) for one in texts])
        assert [sum(mine[place] for mine in answers) for place in range(len(texts))] == [1] * len(texts)

    def test_what_is_not_there_any_more_is_not_written(self, store: Store) -> None:
        written(store)
        texts = list(pages(store))
        for kind in CiphertextKind:
            assert not store.reencrypt(Ciphertext(kind, "nobody", 0, texts[0].text), a_text(NEW))
        assert [one.text for one in pages(store)] == [one.text for one in texts]
