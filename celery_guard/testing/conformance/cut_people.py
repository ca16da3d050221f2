"""What people and replays ask of a store, with the connection cut in the middle: they are told what they did, and it is done once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from celery_guard.job.audit import NewAudit, Outcome
from celery_guard.job.letter import Edit, Handled
from celery_guard.job.replay import ItemState, Replay, ReplayState
from celery_guard.job.state import State
from celery_guard.job.verdict import Granted
from celery_guard.store.protocol import Cancelled, Replayed, Store
from celery_guard.testing.wire import Wire

from .builders import LONG, dead, failure, new_id, new_job, payload
from .ciphertexts import NEW, a_text, pages, written
from .cuts import Cuts, lost
from .moves import accept, die, found, start
from .replays import new_replay

__all__ = ["TestPeopleCut", "TestReplaysCut"]


@lost
class TestPeopleCut(Cuts):
    def test_a_cancel(self, store: Store, wired: tuple[Wire, Store], answers: bool) -> None:
        def check(store: Store, granted: Granted, said: Any) -> None:
            assert said.answer == "asked"
            assert found(store, granted.id).cancel is True

        self._everywhere(store, wired, answers, start, lambda cut, granted: cut.cancel(granted.id), check)

    def test_a_cancel_of_what_waits(self, store: Store, wired: tuple[Wire, Store], answers: bool) -> None:
        def prepare(store: Store) -> str:
            job = new_job()
            accept(store, job)
            return job.id

        def check(store: Store, id: str, said: Any) -> None:
            assert said == Cancelled(id, "cancelled", State.CANCELLED)
            assert found(store, id).state is State.CANCELLED

        self._everywhere(store, wired, answers, prepare, lambda cut, id: cut.cancel(id), check)

    def test_a_replay_of_a_job_that_has_died_again(
        self, store: Store, wired: tuple[Wire, Store], answers: bool
    ) -> None:
        """It is sent again once, however soon a worker has had it."""
        seen: set[str] = set()

        def run(store: Store, granted: Granted) -> None:
            again = store.claim(granted.id, "worker-2", LONG)
            if isinstance(again, Granted):
                seen.add(granted.id)
                assert store.settle(dead(again))

        def check(store: Store, granted: Granted, said: Any) -> None:
            assert said == [Replayed(granted.id, "replayed")]
            if granted.id not in seen:
                run(store, granted)
            row = found(store, granted.id)
            assert (row.state, row.replays) == (State.DEAD, 1)

        self._everywhere(store, wired, answers, die, lambda cut, granted: cut.replay([granted.id]), check, run)

    def test_an_edited_replay(self, store: Store, wired: tuple[Wire, Store], answers: bool) -> None:
        def check(store: Store, granted: Granted, said: Any) -> None:
            assert said == Replayed(granted.id, "replayed")
            row = found(store, granted.id)
            assert (row.state, row.replays, row.generation) == (State.PENDING, 1, 1)
            assert store.payload(granted.id) == payload(b"second")

        def call(cut: Store, granted: Granted) -> Any:
            return cut.replay_edited(Edit(granted.id, 0, payload(b"second"), None))

        self._everywhere(store, wired, answers, die, call, check)

    @pytest.mark.parametrize("purged", [False, True], ids=["is resolved", "is purged"])
    def test_a_letter_that(self, store: Store, wired: tuple[Wire, Store], answers: bool, purged: bool) -> None:
        def call(cut: Store, granted: Granted) -> list[Handled]:
            return cut.purge([granted.id], unreplayed=True) if purged else cut.resolve([granted.id], LONG)

        def check(store: Store, granted: Granted, said: list[Handled]) -> None:
            assert said == [Handled(granted.id, "done")]
            row = store.job(granted.id)
            assert (None if row is None else row.state) == (None if purged else State.RESOLVED)

        self._everywhere(store, wired, answers, die, call, check)

    def test_a_note_to_a_cause(self, store: Store, wired: tuple[Wire, Store], answers: bool) -> None:
        def prepare(store: Store) -> str:
            cause = new_id()
            die(store, failure=failure(cause=cause))
            return cause

        def check(store: Store, cause: str, said: None) -> None:
            assert [group.note for group in store.groups() if group.cause == cause] == ["seen"]

        self._everywhere(store, wired, answers, prepare, lambda cut, cause: cut.annotate(cause, "seen", "ann"), check)

    def test_a_message_put_into_quarantine(self, store: Store, wired: tuple[Wire, Store], answers: bool) -> None:
        def call(cut: Store, name: str) -> int:
            return cut.quarantine(
                queue=name, body=b"\xff", headers="{}", content_type="x", content_encoding="y", reason="z"
            )

        def check(store: Store, name: str, number: int) -> None:
            assert [message.id for message in store.quarantined() if message.queue == name] == [number]

        self._everywhere(store, wired, answers, lambda _: new_id(), call, check)

    @pytest.mark.parametrize(("was", "to"), [("kept", "releasing"), ("kept", "discarded"), ("released", "kept")])
    def test_a_message_in_quarantine_that_is_handled(
        self, store: Store, wired: tuple[Wire, Store], answers: bool, was: str, to: str
    ) -> None:
        def prepare(store: Store) -> int:
            number = store.quarantine(
                queue="q", body=b"", headers="{}", content_type="", content_encoding="", reason="", token=new_id()
            )
            assert was == "kept" or store.move_message(number, "kept", was, "before")
            return number

        def check(store: Store, number: int, said: bool) -> None:
            message = store.message(number)
            assert message is not None
            assert (said, message.state, message.why) == (True, to, "ann: now")

        self._everywhere(
            store, wired, answers, prepare, lambda cut, number: cut.move_message(number, was, to, "ann: now"), check
        )

    def test_rows_of_the_audit(self, store: Store, wired: tuple[Wire, Store], answers: bool) -> None:
        def call(cut: Store, entry: str) -> None:
            said = {"entry": entry, "outcome": Outcome.DONE, "actor": "ann", "role": "", "origin": "", "action": "look"}
            cut.audit([NewAudit(token=new_id(), target=target, **said) for target in ("one", "two")])  # type: ignore[arg-type]

        def check(store: Store, entry: str, said: None) -> None:
            assert [row.target for row in store.audited(entry=entry)] == ["two", "one"]

        self._everywhere(store, wired, answers, lambda _: new_id(), call, check)

    def test_a_ciphertext_under_another_key(self, store: Store, wired: tuple[Wire, Store], answers: bool) -> None:
        fresh: list[str] = []

        def prepare(store: Store) -> Any:
            written(store)
            fresh.append(a_text(NEW))
            return next(pages(store, but=NEW))

        def check(store: Store, was: Any, said: bool) -> None:
            assert said is True
            assert [
                text.text
                for text in pages(store)
                if text.job == was.job and text.part == was.part and text.kind == was.kind
            ] == fresh[-1:]

        self._everywhere(store, wired, answers, prepare, lambda cut, was: cut.reencrypt(was, fresh[-1]), check)

    def test_a_slot(self, store: Store, wired: tuple[Wire, Store], answers: bool) -> None:
        def check(store: Store, name: str, said: bool) -> None:
            assert said is True
            assert store.hold(name, "two", LONG) is False

        self._everywhere(
            store, wired, answers, lambda _: new_id(), lambda cut, name: cut.hold(name, "one", LONG), check
        )

    @pytest.mark.parametrize("mine", [False, True], ids=["of another", "of its own"])
    def test_a_slot_that_is_given_back(
        self, store: Store, wired: tuple[Wire, Store], answers: bool, mine: bool
    ) -> None:
        def prepare(store: Store) -> str:
            name = new_id()
            assert store.hold(name, "one", LONG)
            return name

        def check(store: Store, name: str, said: None) -> None:
            assert store.hold(name, "three", LONG) is mine

        self._everywhere(
            store, wired, answers, prepare, lambda cut, name: cut.release(name, "one" if mine else "two"), check
        )


@lost
class TestReplaysCut(Cuts):
    def test_a_replay_that_is_frozen(self, store: Store, wired: tuple[Wire, Store], answers: bool) -> None:
        def prepare(store: Store) -> tuple[str, list[str]]:
            return new_id(), [die(store).id, die(store).id]

        def call(cut: Store, given: tuple[str, list[str]]) -> int:
            cut.replay_begin(new_replay(id=given[0]))
            return cut.replay_add(given[0], given[1], 0)

        def check(store: Store, given: tuple[str, list[str]], said: int) -> None:
            replay = _read(store, given[0])
            assert (said, replay.total, replay.counts) == (2, 2, {ItemState.WAITING: 2})

        self._everywhere(store, wired, answers, prepare, call, check)

    @pytest.mark.parametrize(
        ("was", "to"),
        [
            (ReplayState.BUILDING, ReplayState.RUNNING), (ReplayState.RUNNING, ReplayState.PAUSED),
            (ReplayState.PAUSED, ReplayState.RUNNING), (ReplayState.RUNNING, ReplayState.DONE),
        ],
    )  # fmt: skip
    def test_a_replay_that_is_moved(
        self, store: Store, wired: tuple[Wire, Store], answers: bool, was: ReplayState, to: ReplayState
    ) -> None:
        def check(store: Store, id: str, said: bool) -> None:
            replay = _read(store, id)
            assert (said, replay.state, replay.why) == (True, to, "ann: so")
            assert replay.wave == (2 if was is ReplayState.PAUSED else 1)

        self._everywhere(
            store,
            wired,
            answers,
            lambda store: _begun(store, [], was),
            lambda cut, id: cut.replay_move(id, [was], to, "ann: so"),
            check,
        )

    def test_a_replay_that_goes_on_to_its_next_wave(
        self, store: Store, wired: tuple[Wire, Store], answers: bool
    ) -> None:
        def check(store: Store, id: str, said: bool) -> None:
            assert (said, _read(store, id).wave) == (True, 2)

        self._everywhere(
            store, wired, answers, lambda store: _begun(store, []), lambda cut, id: cut.replay_wave(id, 1), check
        )

    def test_a_look_at_a_replay(self, store: Store, wired: tuple[Wire, Store], answers: bool) -> None:
        def prepare(store: Store) -> str:
            job = die(store).id
            id = _begun(store, [job])
            assert store.replay_release(id, 1, _read(store, id).turn, 1) == 1
            again = store.claim(job, "worker-2", LONG)
            assert isinstance(again, Granted)
            assert store.settle(dead(again))
            return id

        def check(store: Store, id: str, said: Any) -> None:
            assert (said.wave, said.same_cause, said.over) == ({ItemState.FAILED: 1}, 1, True)

        self._everywhere(store, wired, answers, prepare, lambda cut, id: cut.replay_observe(id, 1, 1), check)

    def test_a_release(self, store: Store, wired: tuple[Wire, Store], answers: bool) -> None:
        """The turn may pass without a job, and the answer be less than was done. The next turn sends what this one did not."""

        def prepare(store: Store) -> tuple[str, int, str]:
            job = die(store).id
            id = _begun(store, [job])
            return id, _read(store, id).turn, job

        def check(store: Store, given: tuple[str, int, str], said: int) -> None:
            id, turn, job = given
            assert said in (0, 1)
            while found(store, job).state is State.DEAD:
                assert _read(store, id).turn > turn
                store.replay_release(id, 1, _read(store, id).turn, 1)
            assert found(store, job).replays == 1
            assert _read(store, id).counts == {ItemState.RELEASED: 1}

        self._everywhere(
            store, wired, answers, prepare, lambda cut, given: cut.replay_release(given[0], 1, given[1], 1), check
        )


def _read(store: Store, id: str) -> Replay:
    replay = store.replay_of(id)
    assert replay is not None
    return replay


def _begun(store: Store, ids: Sequence[str], state: ReplayState = ReplayState.RUNNING) -> str:
    """A replay of these jobs in this state; its id."""
    new = new_replay()
    store.replay_begin(new)
    assert store.replay_add(new.id, ids, 0) == len(ids)
    if state is not ReplayState.BUILDING:
        assert store.replay_move(new.id, [ReplayState.BUILDING], ReplayState.RUNNING)
    if state is ReplayState.PAUSED:
        assert store.replay_move(new.id, [ReplayState.RUNNING], state)
    return new.id
