"""Who is alive, and the store's own tables and connections."""

from __future__ import annotations

import multiprocessing

import pytest

from celery_guard.job.state import State
from celery_guard.store.protocol import Store

from .builders import LONG, SOON, new_id, new_job, succeeded
from .crowd import together
from .moves import accept, claim, eventually, found, store_now
from .subject import Subject

__all__ = ["TestSlots", "TestStoreItself"]


class TestSlots:
    def test_a_free_slot_is_taken(self, store: Store) -> None:
        assert store.hold("relay:0", "one", LONG, "host-1 pid 7 é")
        [beat] = store.heartbeats()
        assert (beat.name, beat.token, beat.live, beat.detail) == ("relay:0", "one", True, "host-1 pid 7 é")
        assert beat.until - beat.beat == LONG
        assert beat.beat.utcoffset() == beat.until.utcoffset() == store_now(store).utcoffset()

    def test_a_held_slot_is_kept_from_others(self, store: Store) -> None:
        assert store.hold("relay:0", "one", LONG)
        assert store.hold("relay:0", "two", LONG) is False
        assert [beat.token for beat in store.heartbeats()] == ["one"]

    def test_a_held_slot_is_kept_by_its_token(self, store: Store) -> None:
        assert store.hold("relay:0", "one", SOON, "before")
        assert store.hold("relay:0", "one", LONG, "after")
        [beat] = store.heartbeats()
        assert (beat.detail, beat.until - beat.beat) == ("after", LONG)
        assert store.hold("relay:0", "two", LONG) is False

    def test_the_slot_of_one_who_died_comes_free(self, store: Store) -> None:
        assert store.hold("relay:0", "one", SOON)
        assert eventually(lambda: store.hold("relay:0", "two", LONG))
        assert store.hold("relay:0", "one", LONG) is False

    def test_one_who_died_is_shown_as_not_alive(self, store: Store) -> None:
        assert store.hold("worker:a", "one", SOON)
        assert eventually(lambda: [beat.live for beat in store.heartbeats()] == [False])

    def test_a_slot_that_was_given_back_is_free(self, store: Store) -> None:
        assert store.hold("relay:0", "one", LONG)
        store.release("relay:0", "one")
        assert [beat for beat in store.heartbeats() if beat.live] == []
        assert store.hold("relay:0", "two", LONG)

    def test_nobody_gives_back_the_slot_of_another(self, store: Store) -> None:
        assert store.hold("relay:0", "one", LONG)
        store.release("relay:0", "two")
        assert store.hold("relay:0", "two", LONG) is False

    def test_slots_are_apart(self, store: Store) -> None:
        assert [store.hold(name, name, LONG) for name in ("relay:0", "relay:1", "Relay:0", "worker:a")] == [True] * 4
        assert sorted(beat.name for beat in store.heartbeats()) == ["Relay:0", "relay:0", "relay:1", "worker:a"]

    def test_of_many_one_takes_a_slot(self, store: Store) -> None:
        for round in range(5):
            answers = together(8, lambda number, round=round: store.hold(f"relay:{round}", f"t{number}", LONG))  # type: ignore[misc]
            assert answers.count(True) == 1


class TestStoreItself:
    def test_an_upgrade_of_what_is_up_to_date_changes_nothing(self, store: Store) -> None:
        job = new_job()
        accept(store, job)
        before = found(store, job.id)
        store.upgrade()
        store.check()
        assert found(store, job.id) == before

    def test_where_no_transaction_is_open_there_is_none_around(self, store: Store) -> None:
        assert store.around() is None

    def test_the_upgrade_can_be_read(self, store: Store) -> None:
        assert store.upgrade_sql().strip()

    def test_two_stores_on_one_database_are_one(self, store: Store, subject: Subject) -> None:
        other = subject.open(subject.url)
        try:
            job = new_job()
            accept(store, job)
            granted = claim(other, job.id)
            assert store.settle(succeeded(granted))
            assert found(other, job.id).state is State.SUCCEEDED
        finally:
            other.close()

    @pytest.mark.skipif("fork" not in multiprocessing.get_all_start_methods(), reason="there is no fork here")
    def test_a_forked_child_and_its_parent_do_not_share_a_connection(self, store: Store) -> None:
        ours, theirs = [new_id() for _ in range(10)], [new_id() for _ in range(10)]
        accept(store, new_job())
        child = multiprocessing.get_context("fork").Process(target=_work, args=(store, theirs), daemon=True)
        child.start()
        for id in ours:
            accept(store, new_job(id=id))
        child.join(30)
        assert child.exitcode == 0
        for id in (*ours, *theirs):
            assert found(store, id).state is State.PENDING


def _work(store: Store, ids: list[str]) -> None:
    """What a forked child does with the store of its parent."""
    store.forget_connections()
    for id in ids:
        accept(store, new_job(id=id))
        found(store, id)
