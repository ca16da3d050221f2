"""What an attempt writes, as far as the conformance suite cannot see it."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from celery_guard.errors import StoreUnavailableError
from celery_guard.job.state import Reason, State
from celery_guard.job.verdict import Granted, Settled
from celery_guard.store.sql import SqlStore
from celery_guard.store.sql import run as attempts
from celery_guard.store.sql.statement import Link
from celery_guard.store.sql.statements.run import Compare
from celery_guard.testing.conformance.builders import LONG, NONE, dead, ended, keyed, new_job, retried, succeeded
from celery_guard.testing.conformance.moves import accept, claim, eventually, found, start, succeed, take, taken_ids


def test_an_owner_with_a_name_as_long_as_a_host_can_have_claims(store: SqlStore) -> None:
    job = new_job()
    accept(store, job)
    granted = store.claim(job.id, "worker@" + "h" * 250, LONG)
    assert isinstance(granted, Granted)
    assert store.settle(succeeded(granted))


def test_two_claims_of_one_process_are_two_owners(store: SqlStore) -> None:
    first, second = start(store, owner="worker"), start(store, owner="worker")
    assert first.owner != second.owner


def test_a_delivery_does_not_tell_an_end_that_was_undone_while_it_looked(
    store: SqlStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    granted = start(store)
    assert store.settle(dead(granted, told=False, tell_within=NONE))
    assert eventually(lambda: taken_ids(store)) == [granted.id]
    stands = attempts._stands

    def stands_later(link: Link, *more: Any) -> Any:
        """Between the claim's look at the row and its last word."""
        store.replay([granted.id])
        store.cancel(granted.id)
        assert taken_ids(store, token="relay-2") == [granted.id]
        return stands(link, *more)

    monkeypatch.setattr(attempts, "_stands", stands_later)
    late = store.claim(granted.id, "worker-2", LONG)
    assert isinstance(late, Settled)
    assert late.tell is False
    monkeypatch.undo()
    verdict = store.claim(granted.id, "worker-3", LONG)
    assert isinstance(verdict, Settled)
    assert (verdict.state, verdict.tell) == (State.CANCELLED, True)


def test_a_settlement_is_only_taken_for_written_where_it_was(store: SqlStore) -> None:
    """A repetition finds its own end, and no other's."""
    granted = start(store)
    end, other = succeeded(granted), dead(granted, reason=None)

    def again(settlement: object) -> object:
        def work(link: Link, again: bool) -> attempts.Move:
            return attempts.settle(link, settlement, again=True)  # type: ignore[arg-type]

        return store._database.whole(work)

    assert store.settle(end)
    assert again(end) is attempts.Move.AWAITED
    assert again(other) is attempts.Move.REFUSED


def test_an_end_that_a_relay_wrote_is_recognized_by_its_failure_whoever_owned_the_job_before(store: SqlStore) -> None:
    granted = start(store)
    assert store.settle(retried(granted))
    [row] = take(store, token="relay-1")
    end = ended(row)

    def write(number: int, *, again: bool) -> attempts.Move:
        return store._database.whole(
            lambda link, _: attempts.settle(link, end, Compare.RELAY, again=again, number=number, relay_="relay-1")
        )

    assert write(1, again=False) is not attempts.Move.REFUSED
    assert write(1, again=True) is attempts.Move.AWAITED
    assert write(2, again=True) is attempts.Move.REFUSED


def test_what_follows_and_conflicts_ends_where_a_person_sees_it(store: SqlStore) -> None:
    holder = succeed(store, keyed("order"))
    conflicting = keyed("order", what="another amount")
    assert store.settle(succeeded(start(store), follow=(conflicting,)))
    row = found(store, conflicting.id)
    assert (row.state, row.reason, row.failure_class) == (State.DEAD, Reason.FAILED, "permanent")
    assert row.failures[0].type_name == "celery_guard.errors.KeyConflict"
    assert holder.id in row.failures[0].message
    # Celery is to be told: what hangs on it would wait for ever.
    assert taken_ids(store) == [conflicting.id]


def test_a_follower_is_not_claimed_before_its_holder_has_ended(store: SqlStore) -> None:
    holder, follower = keyed("order"), keyed("order", in_canvas=True)
    accept(store, holder)
    store.enqueue([follower])
    assert not isinstance(store.claim(follower.id, "worker", LONG), Granted)
    assert store.settle(succeeded(claim(store, holder.id)))
    assert taken_ids(store) == [follower.id]
    assert claim(store, follower.id).holder == holder.id


@pytest.mark.parametrize("text", ["a\x00b", "a\ud800b", "é\U0001f600"])
def test_any_text_of_a_failure_can_be_stored(store: SqlStore, text: str) -> None:
    granted = start(store)
    end = dead(granted)
    failure = end.failure
    assert failure is not None
    store.note(granted.id, replace(failure, message=text, type_name=text * 300))
    assert len(found(store, granted.id).failures) == 1


def test_a_job_without_time_to_keep_is_gone_with_all_that_belongs_to_it(store: SqlStore) -> None:
    granted = start(store)
    assert store.settle(succeeded(granted, keep=NONE))
    assert store.retain(10) == 1
    assert (store.job(granted.id), store.payload(granted.id), store.outcome(granted.id)) == (None, None, None)
    assert store.retain(10) == 0
    assert store.next_due() is None or store.next_due() > timedelta(0)  # type: ignore[operator]


def test_an_end_that_is_committed_stands_though_those_who_waited_for_it_cannot_be_told(
    store: SqlStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    holder, follower = keyed("order 1"), keyed("order 1", in_canvas=True)
    granted = start(store, holder)
    store.enqueue([follower])
    assert store.take("relay", 10, LONG) == []  # from now on the holder knows that somebody waits
    written: list[bool] = []
    real = store._database.quick

    def goes_away(work: Any, *patient: Any) -> Any:
        # right after the settle
        if written:
            raise StoreUnavailableError("gone")
        return real(work, *patient)

    settled = store._settled

    def then_gone(*given: Any) -> None:
        written.append(True)
        settled(*given)

    monkeypatch.setattr(store._database, "quick", goes_away)
    monkeypatch.setattr(store, "_settled", then_gone)
    assert store.settle(succeeded(granted))
    monkeypatch.undo()
    assert found(store, holder.id).state is State.SUCCEEDED
