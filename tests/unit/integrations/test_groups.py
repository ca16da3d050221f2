"""A group is accepted in one write, and whoever is given a handle has a row for it at once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from celery import Celery, chain, chord, group
from kombu.exceptions import OperationalError
from sqlalchemy import create_engine
from sqlalchemy.orm import Session

from celery_guard import GuardedTask, KeyConflict, PayloadError
from celery_guard.integrations.celery import groups


@pytest.fixture(autouse=True)
def _results_in_memory(app: Celery) -> None:
    # Celery's own group subscribes to the results of its members, after they were accepted
    app.conf.result_backend = "cache+memory://"


@pytest.fixture
def add(app: Celery) -> Any:
    @app.task(base=GuardedTask, name="add", shared=False)
    def add(x: Any = 0, y: Any = 2) -> Any:
        return x + y

    return add


@pytest.fixture
def writes(app: Celery, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many jobs each write of the store had."""
    store, found = app.guard.store, []
    plain = store.enqueue

    def enqueue(jobs: Sequence[Any]) -> Any:
        found.append(len(jobs))
        return plain(jobs)

    monkeypatch.setattr(store, "enqueue", enqueue)
    return found


@pytest.fixture(autouse=True)
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The test's own; it stands still."""
    now = [0.0]
    monkeypatch.setattr(groups, "monotonic", lambda: now[0])
    return now


def ids(app: Celery) -> set[str]:
    return {job.id for job in app.guard.store.jobs(limit=2000)}


def test_a_group_of_a_thousand_is_one_write(app: Celery, add: Any, writes: list[int]) -> None:
    sent = group(add.s(n) for n in range(1000)).delay()
    assert writes == [1000]
    assert ids(app) == {member.id for member in sent.results}


def test_members_that_come_slowly_are_written_and_run_meanwhile(
    app: Celery, add: Any, writes: list[int], clock: list[float]
) -> None:
    """As Celery walks through a chord's header that is a generator."""
    seen = []
    with app.producer_or_acquire() as producer:
        for n in range(4):
            clock[0] += 1
            add.apply_async((n,), producer=producer, add_to_parent=False, group_id="g")
            seen.append(len(ids(app)))
    assert (seen, writes) == ([1, 2, 3, 4], [1, 1, 1, 1])


def test_a_group_of_many_thousands_is_not_kept_in_memory_as_a_whole(add: Any, writes: list[int]) -> None:
    group(add.s(n) for n in range(2001)).delay()
    assert writes == [1000, 1000, 1]


def test_chunks_and_a_chords_header_and_the_heads_of_chains_are_one_write_each(add: Any, writes: list[int]) -> None:
    add.chunks([(n, n) for n in range(50)], 5).delay()
    chord([add.s(n) for n in range(7)], add.si()).delay()
    group(chain(add.s(n), add.s(1)) for n in range(4)).delay()
    assert writes == [10, 1, 6, 4], "a chord's first member does not wait for the second"


def test_a_group_inside_a_group_is_a_write_of_its_own(app: Celery, add: Any, writes: list[int]) -> None:
    group(add.s(1), chord([add.s(2), add.s(3)], add.si()), add.s(4)).delay()
    assert sorted(writes) == [1, 1, 2]
    assert len(ids(app)) == 4


def test_a_member_that_cannot_be_sent_leaves_none_of_its_group(app: Celery, add: Any) -> None:
    with pytest.raises(PayloadError):
        group(add.s(1), add.s({1: "a key that JSON turns into text"}), add.s(3)).delay()
    assert ids(app) == set()


def test_a_member_whose_key_is_anothers_is_said_aloud_and_the_others_are_accepted(app: Celery, charge: Any) -> None:
    holder = charge.delay(1, amount=1)
    with pytest.raises(KeyConflict) as refused:
        group(charge.s(2), charge.s(1, amount=2), charge.s(3)).delay()
    assert refused.value.holder == holder.id
    assert len(ids(app)) == 3


def test_a_group_in_a_transaction_goes_with_it_as_one_write(app: Celery, add: Any, writes: list[int]) -> None:
    engine = create_engine(app.guard.settings.store)
    with Session(engine) as session, app.guard.using(session):
        group(add.s(n) for n in range(3)).delay()
        assert len(ids(app)) == 0
        session.commit()
    engine.dispose()
    assert (len(ids(app)), writes) == (3, [])


def test_who_holds_a_producer_open_has_each_job_at_once(app: Celery, add: Any, writes: list[int]) -> None:
    with app.producer_or_acquire() as producer:
        one = add.apply_async((1,), producer=producer)
        assert ids(app) == {one.id}
        sent = group(add.s(2), add.s(3)).apply_async(producer=producer)
        assert ids(app) == {one.id, *(member.id for member in sent.results)}
    assert writes == [1, 2]


def test_a_job_whose_handle_was_given_out_is_there_at_once_also_inside_an_open_producer(app: Celery, add: Any) -> None:
    """``add_to_parent=False`` is a word of everybody's."""
    with app.producer_or_acquire() as producer:
        sent = add.apply_async((1,), producer=producer, add_to_parent=False)
        assert ids(app) == {sent.id}


def test_what_is_no_member_goes_with_its_transaction_also_inside_an_open_producer(app: Celery, add: Any) -> None:
    engine = create_engine(app.guard.settings.store)
    with Session(engine) as session:
        with app.producer_or_acquire(), app.guard.using(session):
            add.apply_async((1,), add_to_parent=False)
        session.rollback()
    engine.dispose()
    assert ids(app) == set()


def test_members_without_a_guard_go_celerys_own_way(app: Celery, add: Any, writes: list[int]) -> None:
    @app.task(name="plain", shared=False)
    def plain(x: int) -> None: ...

    with pytest.raises(OperationalError):
        group(add.s(1), plain.s(2)).apply_async(retry=False)
    assert writes == []
