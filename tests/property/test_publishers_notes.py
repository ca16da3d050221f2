"""What a publisher under chaos writes down: whoever kills it can say what it had been told, and it goes on from there."""

from __future__ import annotations

from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from tests.chaos.notes import ACCEPTED, IN_DOUBT, NEVER_ASKED, ROLLED_BACK, Noted, Notes
from tests.chaos.plan import Plan, Step, Unit, make_plan

PLAIN, ORDER, KEYED, LATER = Unit("plain", 0), Unit("order", 1, how=0), Unit("keyed", 2, how=1), Unit("plain", 3)
SENDS = [Step("send", unit) for unit in (PLAIN, ORDER, KEYED, LATER)]
PLAN = Plan(0, 4, (PLAIN, ORDER, KEYED, LATER), (*SENDS, Step("again", KEYED, 1), Step("cancel", PLAIN)))


def test_what_was_asked_without_an_answer_is_in_doubt() -> None:
    lines = [[0, "asked"], [0, "accepted"], [1, "asked"], [1, "rolled back"], [2, "asked"]]
    noted = Noted().take(PLAN, lines)
    assert [noted.told(unit) for unit in PLAN.units] == [ACCEPTED, ROLLED_BACK, IN_DOUBT, NEVER_ASKED]


def test_every_answer_of_a_key_is_kept_and_what_a_cancel_was_told() -> None:
    lines = [
        [2, "asked"],
        [2, "accepted", "keyed-2.0"],
        [4, "asked"],
        [4, "answered", "keyed-2.0"],
        [5, "cancel", "cancelled", 3],
    ]
    noted = Noted().take(PLAN, lines)
    assert noted.answers == {"keyed-2": ["keyed-2.0", "keyed-2.0"]}
    assert noted.cancels == {"plain-0.0": ("cancelled", 3)}


def test_a_line_that_was_cut_off_is_no_line_and_the_next_one_is_whole(tmp_path: Path) -> None:
    file = tmp_path / "notes"
    notes = Notes(file)
    assert notes.lines() == []
    notes.write(0, "asked")
    with file.open("ab") as torn:
        torn.write(b'[0, "acce')
    assert notes.lines() == [[0, "asked"]]
    notes.write(1, "asked")
    assert notes.lines() == [[0, "asked"], [1, "asked"]]


def test_a_publisher_is_asking_between_a_question_of_its_own_and_the_answer(tmp_path: Path) -> None:
    notes = Notes(tmp_path / "notes")
    assert not notes.is_asking(0)
    notes.write(0, "asked")
    assert notes.is_asking(0)
    assert not notes.is_asking(notes.size()), "the question was that of the one before"
    notes.write(0, "accepted")
    assert not notes.is_asking(0)


@given(seed=st.integers(0, 10**6))
def test_what_is_written_with_a_unit_are_jobs_that_it_promises_and_its_order(seed: int) -> None:
    for unit in make_plan(seed, 60).units:
        promised = {promise.id for promise in unit.promises if not promise.again}
        assert {*unit.written} - promised == ({unit.name} if unit.kind == "order" else set())
