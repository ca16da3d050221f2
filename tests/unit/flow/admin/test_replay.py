"""A replay from its preview to its end, driven by any number of drivers; and what stops it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import timedelta
from typing import Any

import pytest

from celery_guard.errors import (
    ConfirmationNeeded,
    MoveRefused,
    NotAllowed,
    NotFound,
    ReasonMissing,
    StoreError,
    StoreUnavailableError,
)
from celery_guard.flow.admin.actor import Actor, Role, by_role
from celery_guard.flow.admin.audit import Authority
from celery_guard.flow.admin.letters import Letters
from celery_guard.flow.admin.replay import Driver, Replays
from celery_guard.job.replay import ItemState, Replay, ReplayState
from celery_guard.job.state import State
from celery_guard.store.protocol import Store
from celery_guard.testing.conformance.builders import dead, failure, keyed, new_job, retried, succeeded
from celery_guard.testing.conformance.moves import accept, claim, die, found, succeed
from tests.unit.flow.nodes import Watched

ANN = Actor("ann", Role.OPERATOR, origin="here")
EVE = Actor("eve", Role.OPERATOR, tenant="acme", origin="there")

#: So fast that a turn has always come.
FAST = 1000


def replays(store: Any, confirm_above: int = 100, replayable: Callable[[str], bool] = lambda task: True) -> Replays:
    return Replays(store, Authority(store, by_role, confirm_above), replayable)


def begin(store: Any, letters: Letters | None = None, **given: Any) -> Replay:
    return replays(store).begin(letters or Letters(), **{"by": ANN, "reason": "gateway is back", "rate": FAST, **given})


def letters(store: Store, number: int, **given: Any) -> list[str]:
    return [die(store, new_job(**given), failure=failure(cause="down")).id for _ in range(number)]


def of(store: Store, id: str) -> Replay:
    replay = store.replay_of(id)
    assert replay is not None
    return replay


def work(store: Store, fails: Callable[[str], bool] = lambda id: False, cause: str = "down") -> list[str]:
    """Run what waits, as workers would; the ids of those that ran."""
    ran = [job.id for job in store.jobs(states=[State.PENDING], limit=1000)]
    for id in ran:
        granted = claim(store, id)
        assert store.settle(dead(granted, failure=failure(cause=cause)) if fails(id) else succeeded(granted))
    return ran


def drive(
    store: Store, replay: Replay, fails: Callable[[str], bool] = lambda id: False, cause: str = "down"
) -> list[int]:
    """Drive a replay until it does not run any more; how many ran in each wave."""
    waves: dict[int, int] = {}
    driver = Driver(store)
    for _ in range(10_000):
        if not driver.once():
            break
        waves[of(store, replay.id).wave] = waves.get(of(store, replay.id).wave, 0) + len(work(store, fails, cause))
    return [number for number in waves.values() if number]


def test_a_replay_goes_in_growing_waves_and_ends(store: Store) -> None:
    ids = letters(store, 40)
    replay = begin(store)
    assert (replay.state, replay.total, replay.actor, replay.reason) == (
        ReplayState.RUNNING,
        40,
        "ann",
        "gateway is back",
    )
    assert drive(store, replay) == [1, 5, 20, 14]
    done = of(store, replay.id)
    assert (done.state, done.counts) == (ReplayState.DONE, {ItemState.SUCCEEDED: 40})
    assert {found(store, id).replays for id in ids} == {1}


def test_a_second_run_changes_nothing(store: Store) -> None:
    letters(store, 3)
    drive(store, begin(store))
    with pytest.raises(MoveRefused, match="there are no such dead letters"):
        begin(store)
    assert store.counts() == {State.SUCCEEDED: 3}


def test_a_dependency_that_is_still_down_stops_it_after_one_job(store: Store, caplog: pytest.LogCaptureFixture) -> None:
    letters(store, 50)
    replay = begin(store)
    assert drive(store, replay, fails=lambda id: True) == [1]
    stopped = of(store, replay.id)
    assert stopped.state is ReplayState.STOPPED
    [again] = store.replay_failed(replay.id)
    assert stopped.why == (
        f"1 of 1 jobs of wave 1 have failed again, more than 20 %; one of them is job {again.id}: shop.CardDeclined, cause down"
    )
    assert store.counts() == {State.DEAD: 50}
    assert "has stopped itself" in caplog.text
    [row] = store.audited(action="replay.stop")
    assert (row.actor, row.target, row.reason) == ("replay", f"replay {replay.id}", stopped.why)


def test_a_dependency_that_fails_again_after_a_while_stops_it_and_it_goes_on_when_resumed(store: Store) -> None:
    letters(store, 60)
    replay = begin(store)
    ran: list[str] = []

    def fails(id: str) -> bool:
        ran.append(id)
        return len(ran) > 10

    drive(store, replay, fails, cause="another")
    stopped = of(store, replay.id)
    assert stopped.state is ReplayState.STOPPED
    assert "of 20 jobs of wave 3 have failed again" in stopped.why
    assert len(ran) <= 26
    resumed = replays(store).resume(replay.id, by=ANN, reason="it is up again")
    assert (resumed.state, resumed.wave, resumed.run) == (ReplayState.RUNNING, 4, 4)
    waves = drive(store, resumed)
    assert waves[:2] == [1, 5]
    assert of(store, replay.id).state is ReplayState.DONE


def test_jobs_that_fail_and_wait_for_a_retry_of_their_own_count_as_failing(store: Store) -> None:
    letters(store, 10)
    replay = begin(store)
    driver = Driver(store)
    driver.once()
    [id] = [job.id for job in store.jobs(states=[State.PENDING])]
    assert store.settle(retried(claim(store, id), delay=timedelta(hours=1), failure=failure(cause="down")))
    driver.once()
    assert of(store, replay.id).state is ReplayState.STOPPED


def test_a_replay_that_is_paused_sends_no_more_until_it_is_resumed(store: Store) -> None:
    letters(store, 4)
    replay = begin(store)
    Driver(store).once()
    paused = replays(store).pause(replay.id, by=ANN, reason="lunch")
    assert (paused.state, paused.why) == (ReplayState.PAUSED, "ann: lunch")
    assert Driver(store).once() == 0
    with pytest.raises(MoveRefused, match=r"is paused; replay.pause is for one that is running"):
        replays(store).pause(replay.id, by=ANN, reason="again")
    drive(store, replays(store).resume(replay.id, by=ANN, reason="back"))
    assert store.counts() == {State.SUCCEEDED: 4}


def test_one_that_is_aborted_is_over_and_the_rest_stay_letters(store: Store) -> None:
    letters(store, 4)
    replay = begin(store)
    Driver(store).once()
    assert replays(store).abort(replay.id, by=ANN, reason="wrong set").state is ReplayState.ABORTED
    with pytest.raises(MoveRefused):
        replays(store).resume(replay.id, by=ANN, reason="no")
    assert store.counts() == {State.DEAD: 3, State.PENDING: 1}


def test_the_preview_says_how_many_of_what_and_what_would_be_skipped(store: Store) -> None:
    letters(store, 3, tenant="acme")
    letters(store, 1, task="shop.refund")
    holder = die(store, keyed("order 7"))
    accept(store, keyed("order 7"))
    seen = replays(store, replayable=lambda task: task != "shop.refund").preview(Letters(), by=ANN)
    assert (seen.count, seen.would_go) == (5, 3)
    assert seen.tasks == {"shop.charge": 4, "shop.refund": 1}
    assert seen.tenants == {"acme": 3, "": 2}
    assert seen.skipped == {
        "its contract says that its effects are not to be repeated": 1,
        "its key is held by another job (pending)": 1,
    }
    assert found(store, holder.id).state is State.DEAD


def test_what_may_not_be_repeated_is_not_in_the_set(store: Store) -> None:
    [kept] = letters(store, 1, task="shop.refund")
    letters(store, 2)
    replay = replays(store, replayable=lambda task: task != "shop.refund").begin(
        Letters(), by=ANN, reason="r", rate=FAST
    )
    assert replay.total == 2
    drive(store, replay)
    assert found(store, kept).state is State.DEAD


def test_the_set_is_what_the_filter_found_when_it_was_frozen(store: Store) -> None:
    letters(store, 2, tenant="acme")
    other = letters(store, 1, tenant="other")
    replay = begin(store, Letters(tenant="acme"))
    late = letters(store, 1, tenant="acme")
    drive(store, replay)
    assert {found(store, id).state for id in [*other, *late]} == {State.DEAD}


def test_a_tenants_actor_replays_that_tenants_letters_only(store: Store) -> None:
    own, other = letters(store, 1, tenant="acme"), letters(store, 1, tenant="other")
    replay = begin(store, by=EVE)
    drive(store, replay)
    assert [found(store, id).state for id in (*own, *other)] == [State.SUCCEEDED, State.DEAD]
    with pytest.raises(NotAllowed):
        begin(store, Letters(tenant="other"), by=EVE)
    with pytest.raises(NotFound):
        begin(store, Letters(ids=tuple(other)), by=EVE)
    theirs = begin(store)
    assert [each.id for each in replays(store).list(by=EVE)] == [replay.id]
    with pytest.raises(NotFound):
        replays(store).abort(theirs.id, by=EVE, reason="no")
    assert of(store, theirs.id).state is ReplayState.RUNNING


def test_a_replay_has_a_reason_and_a_large_one_is_confirmed(store: Store) -> None:
    letters(store, 3)
    with pytest.raises(ReasonMissing):
        begin(store, reason="")
    with pytest.raises(ConfirmationNeeded, match="--confirm 3"):
        replays(store, confirm_above=2).begin(Letters(), by=ANN, reason="r")
    assert store.replays() == []
    assert replays(store, confirm_above=2).begin(Letters(), by=ANN, reason="r", confirm=3).total == 3


def test_who_began_it_and_why_is_in_the_audit(store: Store) -> None:
    letters(store, 2)
    replay = begin(store, Letters(cause="down"))
    rows = store.audited(action="dlq.replay")
    assert [(str(row.outcome), row.actor, row.reason) for row in rows] == [
        ("done", "ann", "gateway is back"), ("intended", "ann", "gateway is back"),
    ]  # fmt: skip
    assert (rows[0].target, rows[0].detail) == ("dead letters cause=down (2 jobs)", f"replay {replay.id} of 2 jobs")


def _killed(store: Store, after: Iterable[int]) -> Store:
    """A store that is gone after so many writes: as for a process that is killed there."""
    left = iter(after)
    budget = next(left)

    def count(name: str) -> None:
        nonlocal budget
        if name in (
            "replay_begin",
            "replay_add",
            "replay_move",
            "replay_wave",
            "replay_release",
            "replay_observe",
            "audit",
        ):
            budget -= 1
            if budget <= 0:
                raise KeyboardInterrupt

    return Watched(store, count)


@pytest.mark.parametrize("writes", range(1, 30))
def test_a_process_that_dies_at_any_write_repeats_no_job_and_loses_none(store: Store, writes: int) -> None:
    ids = letters(store, 9)
    dying = _killed(store, [writes])
    try:
        begin(dying)
        for _ in range(100):
            Driver(dying).once()
            work(store)
    except KeyboardInterrupt:
        pass
    for left in store.replays(states=[ReplayState.BUILDING]):
        assert {found(store, id).state for id in ids} == {State.DEAD}
        replays(store).abort(left.id, by=ANN, reason="left behind")
    if not store.replays(states=[ReplayState.RUNNING, ReplayState.DONE]):
        begin(store)
    [replay] = store.replays(states=[ReplayState.RUNNING, ReplayState.DONE])
    work(store)
    drive(store, replay)
    assert of(store, replay.id).counts == {ItemState.SUCCEEDED: 9}
    assert [(found(store, id).replays, found(store, id).state) for id in ids] == [(1, State.SUCCEEDED)] * 9


def test_a_store_that_is_away_ends_no_replay(store: Store) -> None:
    letters(store, 2)
    replay = begin(store)

    class Away:
        def replays(self, **_: Any) -> list[Replay]:
            raise StoreUnavailableError("away")

    with pytest.raises(StoreUnavailableError):
        Driver(Away()).once()  # type: ignore[arg-type]
    assert of(store, replay.id).state is ReplayState.RUNNING


def test_one_that_cannot_be_driven_keeps_none_of_the_others_and_is_said_once(
    store: Store, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    each = [begin(store, Letters(ids=(one,))) for one in letters(store, 3)]
    observe = store.replay_observe

    def breaks(id: str, wave: int, run: int) -> Any:
        if id == each[1].id:
            raise StoreError("its row cannot be read")
        return observe(id, wave, run)

    monkeypatch.setattr(store, "replay_observe", breaks)
    driver = Driver(store)
    assert [driver.once(), driver.once()] == [3, 3]
    assert store.counts() == {State.PENDING: 2, State.DEAD: 1}
    assert caplog.text.count("its row cannot be read") == 1


def test_every_replay_that_runs_is_driven_however_many_there_are(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("celery_guard.flow.admin.replay._MOST", 2)
    for one in letters(store, 5):
        begin(store, Letters(ids=(one,)))
    assert Driver(store).once() == 5
    assert store.counts() == {State.PENDING: 5}


def test_what_is_no_letter_any_more_is_not_replayed(store: Store) -> None:
    done = succeed(store).id
    with pytest.raises(MoveRefused, match=r"1 would be skipped \(it is succeeded, not dead\)"):
        begin(store, Letters(ids=(done,)))


@pytest.mark.parametrize(
    "given", [{"rate": 0}, {"rate": 1001}, {"stop_share": 101}, {"same_cause": 101}, {"cap": 0}], ids=str
)
def test_numbers_that_make_no_sense_are_refused(store: Store, given: dict[str, Any]) -> None:
    letters(store, 1)
    with pytest.raises(ValueError, match="rate is over 0"):
        begin(store, **given)
    assert store.replays() == []
