"""What a relay asks of PostgreSQL: one statement to take a batch, one to mark it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pytest

from celery_guard.job.state import Kind, State
from celery_guard.job.tally import Count
from celery_guard.job.verdict import Accepted
from celery_guard.store.sql import SqlStore
from celery_guard.store.sql.statement import CursorLink, Row, Statement
from celery_guard.store.sql.statements import relay as statements
from celery_guard.testing.conformance.builders import LONG, NONE, keyed, new_id, new_job
from celery_guard.testing.conformance.moves import accept, die, found, start, take
from celery_guard.testing.databases import empty

from .conftest import SHORT
from .said import statements_of


@pytest.fixture
def store(postgresql_url: str) -> Iterator[SqlStore]:
    opened = SqlStore(postgresql_url, patience=SHORT)
    opened.upgrade()
    empty(postgresql_url)
    yield opened
    opened.close()


def test_a_batch_is_taken_by_one_statement(store: SqlStore) -> None:
    jobs = [new_job() for _ in range(3)]
    accept(store, *jobs)
    said = statements_of(store)
    assert [row.id for row in take(store)] == [job.id for job in jobs]
    assert len(said) == 1


def test_a_batch_is_marked_and_counted_by_one_statement_whatever_is_in_it(store: SqlStore) -> None:
    waiting, carried = new_job(task="waiting"), new_job(task="carried", kind=Kind.CARRIED)
    granted = die(store, told=False, tell_within=NONE)
    accept(store, waiting, carried)
    token = new_id()
    ids = [row.id for row in take(store, token)]
    assert sorted(ids) == sorted([waiting.id, carried.id, granted.id])
    said = statements_of(store)
    assert store.sent(token, ids, LONG) == 3
    assert len(said) == 1
    assert [found(store, id).state for id in (waiting.id, carried.id, granted.id)] == [
        State.SENT,
        State.SUCCEEDED,
        State.DEAD,
    ]
    published = {one.task: one.total for one in store.counted() if one.what is Count.PUBLISHED}
    assert published["waiting"] == 1
    assert "carried" not in published


def test_what_is_due_beside_a_follower_whose_holder_goes_on_is_taken_in_the_same_call(store: SqlStore) -> None:
    holder = keyed("order 1")
    start(store, holder)
    follower, other, later = keyed("order 1", in_canvas=True), new_job(), new_job()
    assert store.enqueue([follower]) == [Accepted(follower.id, holder=holder.id)]
    accept(store, other)
    said = statements_of(store)
    assert [row.id for row in take(store)] == [other.id]
    assert len(said) > 1
    accept(store, later)
    said.clear()
    assert [row.id for row in take(store)] == [later.id]
    assert len(said) == 1, "the follower has met its holder, and is not looked at"


@pytest.mark.parametrize("cancelled", [False, True], ids=["its own", "cancelled since"])
def test_a_message_that_was_written_while_a_batch_was_being_taken_is_read_again(
    store: SqlStore, monkeypatch: pytest.MonkeyPatch, cancelled: bool
) -> None:
    """Its row is locked as it is by then, while the messages are those that were there when the statement began."""
    rows = CursorLink.rows

    def blind(link: CursorLink, statement: Statement, values: Mapping[str, Any], *shape: Any) -> Sequence[Row]:
        answer = rows(link, statement, values, *shape)
        if statement is statements.take_at_once:
            if cancelled:
                store.cancel(job.id)
            return [(*row[:-3], None, None, None) for row in answer]
        return answer

    monkeypatch.setattr(CursorLink, "rows", blind)
    job = new_job()
    accept(store, job)
    assert [row.payload for row in take(store)] == ([] if cancelled else [job.payload])
