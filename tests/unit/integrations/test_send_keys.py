"""The door and keys: what the second call of a key is told."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from celery import Celery, group

from celery_guard import EnqueueError, KeyConflict
from celery_guard.job.row import StoredResult
from celery_guard.job.verdict import Accepted, Conflict, Duplicate
from celery_guard.testing.conformance.builders import succeeded


def ids(app: Celery) -> set[str]:
    return {job.id for job in app.guard.store.jobs(limit=1000)}


def test_a_duplicate_is_the_holders_handle(app: Celery, charge: Any) -> None:
    first = charge.delay(1)
    again = charge.apply_async(kwargs={"order": 1, "amount": 1})
    assert again.id == first.id
    assert again.duplicate
    assert isinstance(again.answer, Duplicate)
    assert ids(app) == {first.id}


def test_a_duplicate_of_a_success_has_the_stored_value_whatever_the_result_backend_remembers(
    app: Celery, charge: Any
) -> None:
    store = app.guard.store
    first = charge.delay(7)
    granted = store.claim(first.id, "worker", timedelta(minutes=1))
    store.settle(succeeded(granted, result=StoredResult(b'"charged 7"', "application/json", "utf-8")))
    again = charge.delay(7)
    assert (again.id, again.duplicate, again.state) == (first.id, True, "SUCCESS")
    assert again.get(timeout=1) == "charged 7"
    (among_many,) = charge.enqueue_many([(7,)])
    assert among_many.result == "charged 7"


def test_a_call_whose_key_is_none_is_refused(app: Celery, charge: Any) -> None:
    with pytest.raises(EnqueueError, match=r"names 'order', and it is None in this call.*flush the session"):
        charge.delay(None)
    assert ids(app) == set()


def test_the_same_key_with_another_payload_is_a_conflict(app: Celery, charge: Any) -> None:
    first = charge.delay(1)
    with pytest.raises(KeyConflict) as caught:
        charge.delay(1, amount=99)
    assert caught.value.holder == first.id
    assert ids(app) == {first.id}


def test_tenants_do_not_share_keys(app: Celery, charge: Any) -> None:
    one, two = charge.delay(1, tenant="a"), charge.delay(1, tenant="b")
    assert one.id != two.id
    assert {app.guard.store.job(one.id).tenant, app.guard.store.job(two.id).tenant} == {"a", "b"}


def test_a_duplicate_inside_a_canvas_follows_the_holder_under_its_own_id(app: Celery, charge: Any) -> None:
    app.conf.result_backend = "cache+memory://"
    first = charge.delay(1)
    result = group(charge.si(1), charge.si(2)).apply_async()
    follower = app.guard.store.job(result.results[0].id)
    assert follower.holder == first.id
    assert follower.reason.value == "held_key"


def test_enqueue_many_answers_in_order_and_one_refusal_stops_nobody(app: Celery, charge: Any) -> None:
    first = charge.delay(1)
    handles = charge.enqueue_many([{"order": 1}, {"order": 1, "amount": 5}, [2], {"order": 3}])
    assert [type(handle.answer) for handle in handles] == [Duplicate, Conflict, Accepted, Accepted]
    assert ids(app) == {first.id, handles[2].id, handles[3].id}
    assert [handle.duplicate for handle in handles] == [True, False, False, False]
    assert charge.enqueue_many([]) == []
