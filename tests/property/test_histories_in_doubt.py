"""What the history checker does not hold against a run: answers that were lost, and calls that overlap."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from tests.chaos.checker import RULES
from tests.chaos.history import Call, calls_from
from tests.chaos.turns import Moment, Turns, turns_in

from .histories import HEALED, TURNS, good


def test_what_nobody_knows_is_not_held_against_a_run() -> None:
    """A call whose process died may have taken effect or not, and an owner may have settled before its lease was over."""
    claims = [Call("claim", "plain-0.0", fence, f"w{fence}", fence, fence + 0.1, True, 3) for fence in (1, 2, 3)]
    dying = Call("settle", "plain-0.0", 1, "w1", 1.5)
    settled = Call("settle", "plain-0.0", 2, "w2", 2.5, 2.6, True)
    lost_claim = Call("claim", "plain-0.0", 0, None, 2.7)
    history = replace(good(1), calls=[*claims, dying, settled, lost_claim])
    assert not list(RULES["leases_do_not_overlap"](history))


def test_of_two_sweeps_at_once_one_has_recovered_the_job() -> None:
    """Each knows its own recovery by the number of the failure that it wrote, also where the answer was lost."""
    calls = [
        Call("claim", "plain-0.0", 1, "w", 1, 1.1, True, 3),
        Call("recover", "plain-0.0", 1, "w", 4.2, 4.9, True),
        Call("recover", "plain-0.0", 1, "w", 4.3, 4.8, False),
    ]
    history = replace(good(1), calls=calls)
    assert not list(RULES["one_settle_a_fence"](history))
    both = replace(history, calls=[*calls[:2], replace(calls[2], answer=True)])
    assert list(RULES["one_settle_a_fence"](both)) == ["plain-0.0: fence 1 was recovered twice"]


def test_a_recovery_that_was_refused_has_given_nothing_up() -> None:
    claims = [Call("claim", "plain-0.0", fence, f"w{fence}", at, at + 0.1, True, 3) for fence, at in ((1, 1), (2, 6))]
    refused = Call("recover", "plain-0.0", 1, "w1", 4.5, 6.5, False)
    history = replace(good(1), calls=[*claims, refused])
    said = [*RULES["leases_do_not_overlap"](history)]
    assert said == ["plain-0.0: fence 2 was granted, and nobody had ended fence 1"]


@pytest.mark.parametrize(
    ("refused", "found"), [(3.6, []), (2.9, ["fence 2 was granted, and nobody had ended fence 1"])]
)
def test_a_settle_that_was_repeated_may_be_refused_for_what_its_first_try_gave_up(
    refused: float, found: list[str]
) -> None:
    """Its lost answer is asked for again after another claim; one that had been refused before it has given nothing up."""
    claims = [Call("claim", "plain-0.0", fence, f"w{fence}", at, at + 0.1, True, 3) for fence, at in ((1, 1), (2, 3))]
    settled = Call("settle", "plain-0.0", 1, "w1", 1.5, refused, False)
    history = replace(good(1), calls=[*claims, settled])
    assert [said.partition(": ")[2] for said in RULES["leases_do_not_overlap"](history)] == found


def test_an_owner_that_comes_late_may_settle_what_was_recovered_and_nobody_has_claimed() -> None:
    calls = [
        Call("claim", "plain-0.0", 1, "w", 1, 1.1, True, 3),
        Call("recover", "plain-0.0", 1, "w", 4.2, 4.3, True),
        Call("settle", "plain-0.0", 1, "w", 4.4, 4.5, True),
    ]
    history = replace(good(1), calls=calls)
    assert not [
        *RULES["leases_do_not_overlap"](history),
        *RULES["one_settle_a_fence"](replace(history, booked=good(1).booked)),
    ]


def test_a_job_by_which_celery_waits_for_a_chord_is_nobodys() -> None:
    history = good(1)
    own = replace(next(iter(history.rows.values())), id="unlock", task="celery.chord_unlock")
    assert not list(RULES["what_was_asked_is_there_whole"](replace(history, rows={**history.rows, own.id: own})))


def _late(turns: Turns) -> list[str]:
    """What is said about a run whose first job ended a minute after the last fault, where those who could act had these turns."""
    history, minute = good(1), timedelta(minutes=1)
    rows = {id: replace(job, finished=job.finished and job.finished + minute) for id, job in history.rows.items()}
    return [*RULES["recovery_is_bounded"](replace(history, rows=rows, turns=turns))]


def test_time_in_which_nobody_could_act_is_not_held_against_a_recovery() -> None:
    ready, relays = TURNS.ready, {1: [turn for turn in TURNS.relays[1] if turn > HEALED + timedelta(seconds=55)]}
    assert _late(TURNS) == [f"nothing ended for 19.9 leases after {HEALED}"]
    assert not _late(Turns(ready, relays)), "no relay had a turn"
    assert not _late(Turns(HEALED + timedelta(seconds=55), TURNS.relays)), "no worker had come up"
    # a busy machine: a turn in two seconds
    assert not _late(Turns(ready, {1: TURNS.relays[1][::10]}))


def test_turns_of_two_relays_are_not_added_up() -> None:
    every_fourth = TURNS.relays[1][::4]
    assert not _late(Turns(HEALED, {1: every_fourth, 2: every_fourth, 3: every_fourth}))


def test_turns_are_read_by_the_stores_clock(tmp_path: Path) -> None:
    file = tmp_path / "turns"
    file.write_text("worker 7 90.0\nworker 8 101.5\nrelay 5 99.0\nrelay 5 102.0\nrelay 6 103.0\n")
    seconds = [HEALED + timedelta(seconds=n) for n in range(4)]
    assert turns_in(file, Moment(HEALED, 100.0), [8]) == Turns(
        HEALED + timedelta(seconds=1.5), {5: [seconds[2]], 6: [seconds[3]]}
    )


def test_calls_are_read_from_a_trace() -> None:
    lines = [
        {"at": 10**9, "call": "a", "op": "claim", "ids": ["x"], "lease": 3},
        {"at": 2 * 10**9, "call": "a", "answer": ["granted", 4, "w"]},
        {
            "at": 3 * 10**9,
            "call": "b",
            "op": "renew",
            "ids": ["x", "y"],
            "leases": {"x": [4, "w"], "y": [1, "v"]},
            "lease": 3,
        },
        {"at": 4 * 10**9, "call": "b", "answer": ["x"]},
        {"at": 5 * 10**9, "call": "c", "op": "claim", "ids": ["x"], "lease": 3},
        {"at": 6 * 10**9, "call": "c", "answer": ["leased"]},
        {"at": 7 * 10**9, "call": "d", "op": "settle", "ids": ["x"], "mine": [4, "w"], "how": []},
        {"at": 8 * 10**9, "call": "e", "op": "recover", "ids": ["x"], "seen": ["sent", None, 4, None], "how": []},
    ]
    assert calls_from(lines) == [
        Call("claim", "x", 4, "w", 1, 2, True, 3),
        Call("renew", "x", 4, "w", 3, 4, True, 3),
        Call("renew", "y", 1, "v", 3, 4, False, 3),
        Call("claim", "x", 0, None, 5, 6, False, 3),
        Call("settle", "x", 4, "w", 7),
    ]
