"""Dead letters: by what failed alike, closed with a reason, deleted; and what a replay would do."""

from __future__ import annotations

import pytest

from celery_guard.job.letter import LetterGroup
from celery_guard.job.state import State
from celery_guard.store.protocol import Store

from .builders import LONG, NONE, dead, failure, keyed, new_id, new_job, succeeded
from .crowd import together
from .moves import accept, claim, die, eventually, found, publish, start, succeed

__all__ = ["TestAges", "TestExpiry", "TestGroups", "TestPurge", "TestResolve", "TestWouldReplay"]


def _group(store: Store, cause: str) -> LetterGroup:
    [group] = [group for group in store.groups() if group.cause == cause]
    return group


class TestAges:
    def test_a_letter_is_as_old_as_its_death(self, store: Store) -> None:
        id, alive = die(store).id, start(store).id
        assert [job.id for job in store.jobs(ended_since=LONG)] == [id]
        assert [job.id for job in store.jobs(ended_before=NONE)] == [id]
        assert store.jobs(ended_before=LONG) == []
        eventually(lambda: not store.jobs(ended_since=NONE))
        assert {job.id for job in store.jobs(older=NONE)} == {id, alive}
        assert [job.id for job in store.jobs(states=[State.DEAD], ended_since=LONG, older=NONE)] == [id]


class TestGroups:
    def test_letters_are_grouped_by_task_and_cause_the_largest_first(self, store: Store) -> None:
        assert store.groups() == []
        for tenant in ("acme", "acme", "other", None):
            die(store, new_job(task="shop.charge", tenant=tenant), failure=failure(cause="down", type_name="shop.Down"))
        die(store, new_job(task="shop.refund"), failure=failure(cause="bad", type_name="shop.Bad"))
        start(store)
        succeed(store)
        groups = store.groups()
        assert [(g.task, g.cause, g.count, g.tenants, g.type_name) for g in groups] == [
            ("shop.charge", "down", 4, 2, "shop.Down"),
            ("shop.refund", "bad", 1, 0, "shop.Bad"),
        ]
        assert store.groups(limit=1) == groups[:1]
        assert store.groups(task="shop.refund") == groups[1:]
        assert [(g.count, g.tenants) for g in store.groups(tenant="acme")] == [(2, 1)]
        assert groups[0].first <= groups[0].last
        sample = found(store, groups[0].sample)
        assert (sample.task, sample.cause) == ("shop.charge", "down")

    def test_a_letter_that_died_of_no_exception_is_in_a_group_too(self, store: Store) -> None:
        die(store, failure=None)
        [group] = store.groups()
        assert (group.cause, group.count, group.type_name) == (None, 1, "")

    def test_a_note_stays_with_the_cause_until_it_is_replaced_or_taken_away(self, store: Store) -> None:
        die(store, failure=failure(cause="down"))
        store.annotate("down", "gateway, ticket 7", "ann")
        assert (_group(store, "down").note, _group(store, "down").noted_by) == ("gateway, ticket 7", "ann")
        store.annotate("down", "repaired", "bob")
        assert (_group(store, "down").note, _group(store, "down").noted_by) == ("repaired", "bob")
        store.annotate("down", "", "bob")
        assert (_group(store, "down").note, _group(store, "down").noted_by) == ("", "")

    def test_of_two_who_put_a_note_at_once_one_is_read(self, store: Store) -> None:
        die(store, failure=failure(cause="down"))
        together(4, lambda who: store.annotate("down", f"note {who}", f"{who}"))
        group = _group(store, "down")
        assert group.note == f"note {group.noted_by}"


class TestExpiry:
    def test_what_retention_takes_of_dead_letters_is_counted_in_the_audit(self, store: Store) -> None:
        for tenant in ("acme", "acme", None):
            die(store, new_job(task="shop.charge", tenant=tenant), keep=NONE)
        die(store, new_job(task="shop.refund"))
        succeed(store, keep=NONE)
        gone = 0
        while gone < 4:
            gone += eventually(lambda: store.retain(10))
        rows = store.audited(action="dlq.expire")
        said: dict[tuple[str, str | None], int] = {}
        for row in rows:
            assert (row.actor, row.origin, row.reason) == ("retention", "sweep", "their time was over")
            whose = row.target, row.tenant
            said[whose] = said.get(whose, 0) + int(row.detail.removesuffix(" deleted"))
        task = "dead letters task=shop.charge"
        assert said == {(task, "acme"): 2, (task, None): 1}


class TestResolve:
    def test_dead_letters_are_closed_and_kept(self, store: Store) -> None:
        granted, other = die(store, keep=NONE), die(store)
        [answer] = store.resolve([granted.id], LONG)
        assert (answer.id, answer.answer) == (granted.id, "done")
        row = found(store, granted.id)
        assert (row.state, len(row.failures)) == (State.RESOLVED, 1)
        assert store.retain(10) == 0
        assert found(store, other.id).state is State.DEAD
        assert [group.count for group in store.groups()] == [1]

    def test_a_closed_letter_is_forgotten_when_its_time_is_over(self, store: Store) -> None:
        granted = die(store)
        store.resolve([granted.id], NONE)
        assert eventually(lambda: store.retain(10)) == 1
        assert store.job(granted.id) is None

    def test_only_the_dead_are_closed_and_each_once(self, store: Store) -> None:
        running, done, granted, nobody = start(store).id, succeed(store).id, die(store).id, new_id()
        answers = store.resolve([running, done, granted, nobody, granted], LONG)
        assert [answer.id for answer in answers] == [running, done, granted, nobody, granted]
        assert [answer.answer for answer in answers[:4]] == ["skipped", "skipped", "done", "skipped"]
        assert [answer.why for answer in answers[:4]] == [
            "it is running, not dead", "it is succeeded, not dead", "", "there is no such job",
        ]  # fmt: skip
        [again] = store.resolve([granted], LONG)
        assert (again.answer, again.why) == ("skipped", "it is resolved, not dead")
        assert found(store, running).state is State.RUNNING

    def test_a_closed_letter_is_not_replayed(self, store: Store) -> None:
        granted = die(store)
        store.resolve([granted.id], LONG)
        assert [answer.answer for answer in store.replay([granted.id])] == ["skipped"]
        assert found(store, granted.id).state is State.RESOLVED

    def test_of_those_who_close_and_those_who_replay_at_once_one_does(self, store: Store) -> None:
        ids = [die(store).id for _ in range(6)]

        def act(who: int) -> list[str]:
            if who % 2:
                return [answer.answer for answer in store.resolve(ids, LONG)]
            return [answer.answer for answer in store.replay(ids)]

        answers = together(4, act)
        for place in range(6):
            assert sum(mine[place] in ("done", "replayed") for mine in answers) == 1


class TestPurge:
    def test_letters_go_with_all_that_belongs_to_them(self, store: Store) -> None:
        granted = die(store)
        [answer] = store.purge([granted.id], unreplayed=True)
        assert (answer.id, answer.answer) == (granted.id, "done")
        assert store.job(granted.id) is None
        assert store.payload(granted.id) is None
        assert store.jobs() == []
        assert store.groups() == []

    def test_one_that_was_neither_replayed_nor_closed_is_kept_unless_that_is_meant(self, store: Store) -> None:
        fresh, replayed, closed = die(store).id, die(store).id, die(store).id
        store.replay([replayed])
        assert store.settle(dead(claim(store, replayed)))
        store.resolve([closed], LONG)
        answers = store.purge([fresh, replayed, closed], unreplayed=False)
        assert [(answer.answer, answer.why) for answer in answers] == [
            ("skipped", "it was neither replayed nor resolved"), ("done", ""), ("done", ""),
        ]  # fmt: skip
        assert [job.id for job in store.jobs()] == [fresh]

    def test_one_that_celery_was_not_told_of_is_kept(self, store: Store) -> None:
        granted = die(store, told=False, tell_within=LONG)
        [answer] = store.purge([granted.id], unreplayed=True)
        assert (answer.answer, answer.why) == ("skipped", "Celery has not been told of its end yet")

    def test_what_is_no_letter_is_kept(self, store: Store) -> None:
        running, done = start(store).id, succeed(store).id
        answers = store.purge([running, done, new_id()], unreplayed=True)
        assert [answer.answer for answer in answers] == ["skipped"] * 3
        assert {job.id for job in store.jobs()} == {running, done}

    def test_a_letter_that_was_replayed_meanwhile_is_kept(self, store: Store) -> None:
        granted = die(store)
        store.replay([granted.id])
        [answer] = store.purge([granted.id], unreplayed=True)
        assert (answer.answer, answer.why) == ("skipped", "it is pending, not dead")


class TestWouldReplay:
    def test_what_a_replay_would_do_is_said_and_not_done(self, store: Store) -> None:
        fine, running, nobody = die(store).id, start(store).id, new_id()
        answers = store.would_replay([fine, running, nobody])
        assert [(answer.id, answer.answer, answer.why) for answer in answers] == [
            (fine, "replayed", ""), (running, "skipped", "it is running, not dead"), (nobody, "skipped", "there is no such job"),
        ]  # fmt: skip
        assert found(store, fine).state is State.DEAD

    @pytest.mark.parametrize("ended", [False, True], ids=["waits", "succeeded"])
    def test_one_whose_key_another_job_has_would_be_skipped_as_it_is(self, store: Store, ended: bool) -> None:
        granted = die(store, keyed("order 7"))
        other = keyed("order 7")
        if ended:
            publish(store, other)
            assert store.settle(succeeded(claim(store, other.id)))
        else:
            accept(store, other)
        [would], [did] = store.would_replay([granted.id]), store.replay([granted.id])
        assert (would.answer, would.why) == (did.answer, did.why)
        assert (would.answer, other.id in would.why) == ("skipped", True)
