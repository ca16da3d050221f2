"""The history checker of the chaos tests: it has nothing to say about a good run, and each rule sees what breaks it."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from celery_guard.job.row import Job
from celery_guard.job.state import State
from tests.chaos.checker import GAP, RULES, check
from tests.chaos.history import Call, Entry, History
from tests.chaos.notes import ACCEPTED, IN_DOUBT, NEVER_ASKED, Sight
from tests.chaos.plan import Promise, Unit

from .histories import HEALED, LEASE, good


@dataclass
class Spoiler:
    """A history that is being spoilt."""

    history: History
    draw: random.Random

    def any(self, fits: Callable[[Unit, Promise, Job], bool]) -> tuple[Unit, Promise, Job]:
        """One of the accepted jobs that fit."""
        found = [
            (unit, promise, self.history.rows[promise.id])
            for unit, promise in self.history.accepted()
            if promise.id in self.history.rows and fits(unit, promise, self.history.rows[promise.id])
        ]
        return self.draw.choice(found)

    def ran(self) -> tuple[Unit, Promise, Job]:
        return self.any(lambda unit, promise, job: job.state is State.SUCCEEDED and not promise.keyed)

    def rolled_back(self) -> Unit:
        return self.draw.choice([unit for unit in self.history.plan.units if unit.is_rolled_back])

    def with_row(self, job: Job) -> History:
        return replace(self.history, rows={**self.history.rows, job.id: job})

    def without_row(self, id: str) -> History:
        return replace(self.history, rows={name: job for name, job in self.history.rows.items() if name != id})

    def with_entries(self, *entries: Entry) -> History:
        return replace(self.history, entries=[*self.history.entries, *entries])

    def without_entries(self, id: str, word: str) -> History:
        kept = [entry for entry in self.history.entries if entry.id != id or not entry.what.startswith(word)]
        return replace(self.history, entries=kept)

    def with_calls(self, *calls: Call) -> History:
        return replace(self.history, calls=sorted([*self.history.calls, *calls], key=lambda call: call.began))

    def without_calls(self, id: str, *ops: str) -> History:
        return replace(self.history, calls=[call for call in self.history.calls if call.id != id or call.op not in ops])

    def with_sight(self, told: str, there: Callable[[Unit], set[str]], kind: str = "group") -> History:
        """The publisher was killed once more, and this was there of a unit."""
        unit = self.draw.choice([unit for unit in self.history.plan.units if unit.kind == kind])
        sight = Sight("after some", [(unit, told, frozenset(there(unit)))])
        return replace(self.history, sights=[*self.history.sights, sight])

    def claim(self, id: str) -> Call:
        return next(call for call in reversed(self.history.calls) if call.id == id and call.op == "claim")


Spoilt = Callable[[Spoiler], History]
SPOILT: dict[str, tuple[str, Spoilt]] = {}


def breaks(rule: str) -> Callable[[Spoilt], Spoilt]:
    """A way to break a rule."""

    def known(spoil: Spoilt) -> Spoilt:
        SPOILT[spoil.__name__.strip("_").replace("_", " ")] = rule, spoil
        return spoil

    return known


@breaks("nothing_accepted_is_lost")
def a_row_is_gone(it: Spoiler) -> History:
    return it.without_row(it.ran()[1].id)


@breaks("nothing_accepted_is_lost")
def a_healthy_job_is_dead(it: Spoiler) -> History:
    return it.with_row(replace(it.ran()[2], state=State.DEAD))


@breaks("nothing_accepted_is_lost")
def a_job_succeeded_without_its_body(it: Spoiler) -> History:
    return it.without_entries(it.ran()[1].id, "return")


@breaks("nothing_accepted_is_lost")
def nobody_ran_under_a_key(it: Spoiler) -> History:
    _, promise, _ = it.any(lambda unit, promise, job: unit.kind == "twins" and promise.id == unit.id(0))
    return it.without_entries(promise.id, "return")


@breaks("nothing_rolled_back_ran")
def what_was_rolled_back_has_run(it: Spoiler) -> History:
    return it.with_entries(Entry("enter", it.rolled_back().id(), 1))


@breaks("nothing_rolled_back_ran")
def what_was_rolled_back_has_a_row(it: Spoiler) -> History:
    return it.with_row(replace(it.ran()[2], id=it.rolled_back().id()))


@breaks("nothing_rolled_back_ran")
def an_order_was_not_rolled_back(it: Spoiler) -> History:
    return replace(it.history, orders=[*it.history.orders, it.rolled_back().name])


@breaks("nothing_rolled_back_ran")
def a_job_came_before_its_order(it: Spoiler) -> History:
    unit, promise, _ = it.any(lambda unit, promise, job: unit.kind == "order")
    return it.with_entries(Entry(f"missing {unit.name}", promise.id, 1))


@breaks("what_was_asked_is_there_whole")
def what_the_killed_publisher_was_told_is_accepted_is_not_there(it: Spoiler) -> History:
    return it.with_sight(ACCEPTED, lambda unit: set())


@breaks("what_was_asked_is_there_whole")
def what_the_killed_publisher_never_asked_is_there(it: Spoiler) -> History:
    return it.with_sight(NEVER_ASKED, lambda unit: {*unit.written})


@breaks("what_was_asked_is_there_whole")
def a_canvas_in_doubt_is_there_in_part(it: Spoiler) -> History:
    return it.with_sight(IN_DOUBT, lambda unit: {*unit.written[:-1]})


@breaks("what_was_asked_is_there_whole")
def an_order_in_doubt_is_there_without_its_job(it: Spoiler) -> History:
    return it.with_sight(IN_DOUBT, lambda unit: {unit.name}, "order")


@breaks("what_was_asked_is_there_whole")
def an_order_in_doubt_that_was_to_be_rolled_back_is_there(it: Spoiler) -> History:
    unit = it.rolled_back()
    return replace(it.history, sights=[Sight("after some", [(unit, IN_DOUBT, frozenset(unit.written))])])


@breaks("what_was_asked_is_there_whole")
def a_canvas_whose_publisher_never_came_back_is_there_in_part(it: Spoiler) -> History:
    unit, promise, _ = it.any(lambda unit, promise, job: unit.kind == "group")
    it.history.noted.accepted.remove(unit.name)
    return it.without_row(promise.id)


@breaks("what_was_asked_is_there_whole")
def a_job_is_there_that_nobody_planned(it: Spoiler) -> History:
    return it.with_row(replace(it.ran()[2], id="stranger"))


@breaks("leases_do_not_overlap")
def a_job_was_granted_twice(it: Spoiler) -> History:
    claim = it.claim(it.ran()[1].id)
    return it.with_calls(
        replace(claim, fence=claim.fence + 1, owner="thief", began=claim.began + 1, ended=claim.began + 1.1)
    )


@breaks("leases_do_not_overlap")
def a_fence_was_granted_twice(it: Spoiler) -> History:
    claim = it.claim(it.ran()[1].id)
    return it.with_calls(replace(claim, owner="twin", began=claim.began + 50, ended=claim.began + 50.1))


@breaks("leases_do_not_overlap")
def a_live_lease_was_taken(it: Spoiler) -> History:
    claim = it.claim(it.ran()[1].id)
    # within three seconds after the renewal, which was a second after the claim
    stolen = Call("recover", claim.id, claim.fence, claim.owner, claim.began + 3.5, claim.began + 3.6, True)
    return Spoiler(it.without_calls(claim.id, "settle"), it.draw).with_calls(stolen)


@breaks("one_settle_a_fence")
def an_attempt_ended_twice(it: Spoiler) -> History:
    claim = it.claim(it.ran()[1].id)
    return it.with_calls(Call("settle", claim.id, claim.fence, claim.owner, claim.began + 5, claim.began + 5.1, True))


@breaks("one_settle_a_fence")
def an_attempt_was_settled_and_recovered(it: Spoiler) -> History:
    claim = it.claim(it.ran()[1].id)
    return it.with_calls(Call("recover", claim.id, claim.fence, claim.owner, claim.began + 9, claim.began + 9.1, True))


@breaks("one_settle_a_fence")
def an_attempt_was_recovered_twice(it: Spoiler) -> History:
    claim = it.claim(it.ran()[1].id)
    lapsed = [
        Call("recover", claim.id, claim.fence, claim.owner, claim.began + at, claim.began + at + 0.1, True)
        for at in (9, 10)
    ]
    return Spoiler(it.without_calls(claim.id, "settle"), it.draw).with_calls(*lapsed)


@breaks("one_settle_a_fence")
def a_booking_is_there_twice(it: Spoiler) -> History:
    id = it.any(lambda unit, promise, job: promise.books)[1].id
    return replace(it.history, booked={**it.history.booked, id: 2})


@breaks("one_settle_a_fence")
def a_booking_is_missing(it: Spoiler) -> History:
    id = it.any(lambda unit, promise, job: promise.books)[1].id
    return replace(it.history, booked={**it.history.booked, id: 0})


@breaks("one_outcome_a_key")
def a_duplicate_is_another_job(it: Spoiler) -> History:
    unit = it.any(lambda unit, promise, job: unit.kind == "keyed")[0]
    it.history.noted.answers[unit.name].append(unit.id(1))
    return it.history


@breaks("one_outcome_a_key")
def a_duplicate_has_run(it: Spoiler) -> History:
    unit = it.any(lambda unit, promise, job: unit.kind in ("keyed", "twins"))[0]
    return it.with_entries(Entry("enter", unit.id(1), 1))


@breaks("canvases_complete")
def a_chord_is_short_of_a_member(it: Spoiler) -> History:
    _, promise, job = it.any(
        lambda unit, promise, job: unit.kind in ("chord", "nested") and promise.id == unit.id("sum")
    )
    assert promise.value is not None
    return it.with_entries(Entry(f"return {promise.value - 1}", promise.id, job.fence))


@breaks("canvases_complete")
def the_rest_of_a_chain_never_ran(it: Spoiler) -> History:
    _, promise, _ = it.any(lambda unit, promise, job: unit.kind == "chain" and promise.id == unit.id(2))
    return replace(it.without_entries(promise.id, ""), rows=it.without_row(promise.id).rows)


@breaks("attempts_are_bounded")
def a_job_had_one_attempt_too_many(it: Spoiler) -> History:
    job = it.ran()[2]
    return it.with_row(replace(job, attempts=job.attempts + 1))


@breaks("attempts_are_bounded")
def a_poisonous_job_was_not_given_up(it: Spoiler) -> History:
    _, promise, job = it.any(lambda unit, promise, job: unit.kind == "poison")
    return it.with_row(replace(job, crashes=promise.crashes + 1, attempts=job.attempts + 2))


@breaks("attempts_are_bounded")
def a_body_was_entered_twice_under_one_fence(it: Spoiler) -> History:
    _, promise, job = it.ran()
    return it.with_entries(Entry("enter", promise.id, job.fence))


@breaks("attempts_are_bounded")
def a_body_was_entered_under_a_fence_that_nobody_gave(it: Spoiler) -> History:
    _, promise, job = it.ran()
    return it.with_entries(Entry("enter", promise.id, job.fence + 1))


@breaks("a_cancelled_job_does_not_start")
def a_cancelled_job_has_started(it: Spoiler) -> History:
    return it.with_entries(Entry("enter", it.any(lambda unit, promise, job: unit.kind == "cancel")[1].id, 1))


@breaks("a_cancelled_job_does_not_start")
def a_cancel_is_forgotten(it: Spoiler) -> History:
    return it.with_row(replace(it.any(lambda unit, promise, job: unit.kind == "cancel")[2], state=State.SUCCEEDED))


@breaks("every_job_ends")
def a_job_still_runs(it: Spoiler) -> History:
    return it.with_row(replace(it.ran()[2], state=State.RUNNING))


@breaks("every_job_ends")
def celery_was_never_told(it: Spoiler) -> History:
    return it.with_row(replace(it.ran()[2], told=False))


@breaks("recovery_is_bounded")
def the_last_job_took_too_long(it: Spoiler) -> History:
    last = max(it.history.rows.values(), key=lambda job: job.finished or HEALED)
    assert last.finished is not None
    return it.with_row(replace(last, finished=last.finished + (GAP + 1) * LEASE))


@breaks("recovery_is_bounded")
def a_job_is_stuck_while_a_relay_has_its_turns(it: Spoiler) -> History:
    return it.with_row(replace(it.ran()[2], state=State.RUNNING, finished=None))


# -- the tests --------------------------------------------------------------------------------------------------------


@given(seed=st.integers(0, 10**6))
def test_nothing_is_said_about_a_good_run(seed: int) -> None:
    assert check(good(seed)) == {}


@pytest.mark.parametrize("how", sorted(SPOILT))
@settings(max_examples=10)
@given(seed=st.integers(0, 10**6))
def test_what_breaks_a_rule_is_seen(how: str, seed: int) -> None:
    rule, spoil = SPOILT[how]
    assert rule in check(spoil(Spoiler(good(seed), random.Random(seed))))


def test_each_rule_is_seen_to_fail() -> None:
    assert {rule for rule, _ in SPOILT.values()} == set(RULES)
