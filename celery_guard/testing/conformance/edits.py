"""Dead letters that are sent again with another message: in one transaction with the replay, by the first who edits."""

from __future__ import annotations

from celery_guard.job.letter import Edit
from celery_guard.job.state import Reason, State
from celery_guard.job.verdict import Accepted
from celery_guard.store.protocol import Store

from .builders import dead, digest, keyed, new_id, new_job, payload, succeeded
from .crowd import together
from .moves import accept, claim, die, eventually, found, start, succeed, take, taken_ids

__all__ = ["TestEdits"]


def edit(id: str, body: bytes = b"corrected", generation: int = 0, what: str | None = None) -> Edit:
    return Edit(id, generation, payload(body, headers='{"id": "x"}'), None if what is None else digest(what))


def _die_again(store: Store, id: str) -> None:
    assert store.settle(dead(claim(store, id)))


class TestEdits:
    def test_a_letter_goes_with_its_new_message_and_the_old_one_stays(self, store: Store) -> None:
        job = new_job(payload=payload(b"wrong"))
        first = die(store, job)
        assert store.replay_edited(edit(job.id)).answer == "replayed"
        row = found(store, job.id)
        assert (row.state, row.reason, row.generation, row.replays) == (State.PENDING, Reason.REPLAY, 1, 1)
        assert (row.attempts, row.retries, len(row.failures), row.fence) == (0, 0, 1, first.fence + 1)
        assert [each.payload for each in take(store)] == [edit(job.id).payload]
        assert (store.payload(job.id, 0), store.payload(job.id)) == (payload(b"wrong"), edit(job.id).payload)
        assert claim(store, job.id).generation == 1

    def test_the_first_who_edits_a_message_wins(self, store: Store) -> None:
        job = new_job()
        die(store, job)
        assert store.replay_edited(edit(job.id, b"ann's")).answer == "replayed"
        _die_again(store, job.id)
        second = store.replay_edited(edit(job.id, b"bob's"))
        assert (second.answer, second.why) == (
            "skipped",
            "its message is generation 1 by now, and generation 0 was edited",
        )
        assert (found(store, job.id).state, store.payload(job.id)) == (State.DEAD, edit(job.id, b"ann's").payload)
        assert store.payload(job.id, 2) is None
        assert store.replay_edited(edit(job.id, b"bob's", generation=1)).answer == "replayed"
        assert store.payload(job.id) == edit(job.id, b"bob's").payload

    def test_of_two_who_edit_at_once_one_wins_and_it_is_the_ones_message(self, store: Store) -> None:
        job = new_job()
        die(store, job)
        bodies = [b"ann's", b"bob's", b"eve's"]
        answers = together(3, lambda number: store.replay_edited(edit(job.id, bodies[number])).answer)
        assert sorted(answers) == ["replayed", "skipped", "skipped"]
        won = bodies[answers.index("replayed")]
        assert (store.payload(job.id), found(store, job.id).replays) == (edit(job.id, won).payload, 1)

    def test_only_a_dead_one_is_sent(self, store: Store) -> None:
        alive, done = start(store).id, succeed(store).id
        for id, why in ((alive, "it is running, not dead"), (done, "it is succeeded, not dead")):
            assert store.replay_edited(edit(id)).why == why
            assert (found(store, id).generation, store.payload(id, 1)) == (0, None)
        assert store.replay_edited(edit(new_id())).why == "there is no such job"

    def test_it_is_known_by_its_new_call_from_then_on(self, store: Store) -> None:
        key = new_id()
        job = keyed(key, "wrong")
        die(store, job)
        assert store.replay_edited(edit(job.id, what="right")).answer == "replayed"
        again, other = store.enqueue([keyed(key, "right"), keyed(key, "wrong")])
        assert (type(again).__name__, type(other).__name__) == ("Duplicate", "Conflict")

    def test_a_key_that_another_holds_keeps_it_dead(self, store: Store) -> None:
        key = new_id()
        job = keyed(key)
        die(store, job)
        other = keyed(key)
        accept(store, other)
        assert store.replay_edited(edit(job.id)).why == f"its key is held by job {other.id} (pending)"
        assert (found(store, job.id).generation, store.payload(job.id, 1)) == (0, None)

    def test_a_follower_does_not_take_its_holders_outcome_for_another_call(self, store: Store) -> None:
        key = new_id()
        holder, follower = keyed(key), keyed(key, in_canvas=True)
        granted = start(store, holder)
        assert store.enqueue([follower]) == [Accepted(follower.id, holder=holder.id)]
        assert take(store) == []
        assert store.settle(succeeded(granted))
        assert eventually(lambda: taken_ids(store)) == [follower.id]
        # what its holder returned cannot be read, say
        _die_again(store, follower.id)
        assert store.replay_edited(edit(follower.id)).why == f"its key is held by job {holder.id} (succeeded)"

    def test_what_was_edited_goes_with_its_row(self, store: Store) -> None:
        job = new_job()
        die(store, job)
        assert store.replay_edited(edit(job.id)).answer == "replayed"
        _die_again(store, job.id)
        assert [answer.answer for answer in store.purge([job.id], unreplayed=False)] == ["done"]
        assert [store.payload(job.id, generation) for generation in (0, 1)] == [None, None]
