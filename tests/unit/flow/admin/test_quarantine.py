"""Releasing a message from quarantine: what the store says of it is never more than what is known."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager

import pytest

from celery_guard.flow.admin.actor import Actor, Role, by_role
from celery_guard.flow.admin.audit import Authority
from celery_guard.flow.admin.quarantine import Fetched, Posted, Quarantine
from celery_guard.store.protocol import Quarantined, Store

ANN = Actor("ann", Role.OPERATOR, origin="here")


class Mailbox:
    """A broker that answers as it is told; None: it is out."""

    def __init__(self, *answers: Posted | None) -> None:
        self.answers = [*answers]
        self.asked: list[int] = []

    def publish(self, message: Quarantined, queue: str) -> Posted:
        self.asked.append(message.id)
        answer = self.answers.pop(0)
        if answer is None:
            raise ConnectionError("the broker is out")
        return answer

    def fetch(self, queue: str, limit: int) -> AbstractContextManager[Iterator[Fetched]]:
        raise NotImplementedError

    def works_on(self, queue: str) -> bool:
        return False


LOST = Posted("unknown", "the broker was lost before it answered: ConnectionResetError")


def hands(store: Store, *answers: Posted | None) -> Quarantine:
    return Quarantine(store, Authority(store, by_role, 100), Mailbox(*answers))


def kept(store: Store) -> int:
    return store.quarantine(
        queue="q", body=b"x", headers="{}", content_type="text/plain", content_encoding="utf-8", reason="r"
    )


def state(store: Store, number: int) -> tuple[str, str]:
    found = store.message(number)
    assert found is not None
    return found.state, found.why


def test_a_message_that_may_have_gone_out_stays_releasing_until_somebody_looks(store: Store) -> None:
    lost, fine = kept(store), kept(store)
    answers = hands(store, LOST, Posted("taken")).release([lost, fine], by=ANN, reason="mended")
    assert [answer.answer for answer in answers] == ["unknown", "released"]
    assert "may have gone out" in answers[0].why
    assert state(store, lost) == ("releasing", f"by ann: mended; {LOST.why}")
    assert "1 released, 1 unknown" in store.audited()[0].detail
    [again] = hands(store).release([lost], by=ANN, reason="mended")
    assert (again.answer, "may have gone out" in again.why) == ("skipped", True)
    [again] = hands(store, Posted("taken")).release([lost], by=ANN, reason="it had not", again=True)
    assert (again.answer, state(store, lost)[0]) == ("released", "released")


@pytest.mark.parametrize("answer", [None, Posted("refused", "there is no such queue")])
def test_one_that_has_surely_not_gone_out_is_kept(store: Store, answer: Posted | None) -> None:
    number = kept(store)
    if answer is None:
        with pytest.raises(ConnectionError):
            hands(store, answer).release([number], by=ANN, reason="mended")
    else:
        assert hands(store, answer).release([number], by=ANN, reason="mended")[0].answer == "skipped"
    assert state(store, number)[0] == "kept"


@pytest.mark.parametrize("answer", [None, Posted("refused", "there is no such queue")])
def test_one_that_may_have_gone_out_is_not_kept_again_because_the_next_try_failed(
    store: Store, answer: Posted | None
) -> None:
    number = kept(store)
    hands(store, LOST).release([number], by=ANN, reason="mended")
    if answer is None:
        with pytest.raises(ConnectionError):
            hands(store, answer).release([number], by=ANN, reason="it had not", again=True)
    else:
        hands(store, answer).release([number], by=ANN, reason="it had not", again=True)
    now, why = state(store, number)
    assert (now, LOST.why in why) == ("releasing", True)


def test_the_audit_says_what_was_done_about_a_message(store: Store) -> None:
    one, other = kept(store), kept(store)
    hands(store, Posted("taken")).release([one], by=ANN, reason="mended")
    hands(store).discard([other], by=ANN, reason="a test of the partner's")
    assert {row.action for row in store.audited()} == {"quarantine.release", "quarantine.discard"}
