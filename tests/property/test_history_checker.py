"""The history checker of the chaos tests: it has nothing to say about a good run, and each rule sees what breaks it."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime, timedelta, timezone

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from celery_guard.job.row import Job
from celery_guard.job.state import Kind, State
from tests.chaos.checker import GAP, RULES, check
from tests.chaos.history import Call, Entry, History, calls_from
from tests.chaos.plan import Promise, Unit, make_plan
from tests.chaos.publish import Noted

LEASE = timedelta(seconds=3)
HEALED = datetime(2026, 1, 1, tzinfo=timezone.utc)


# -- a good run -------------------------------------------------------------------------------------------------------


def good(seed: int) -> History:
    """What a run leaves in which everything went as it should, with retries, and a crash under every seventh job."""
    plan = make_plan(seed, 120)
    noted = Noted()
    history = History(plan, noted, {}, [], [], {}, [], HEALED, LEASE)
    rows: dict[str, Job] = {}
    entries: list[Entry] = []
    calls: list[Call] = []
    booked: dict[str, int] = {}
    orders: list[str] = []
    for unit in plan.units:
        if unit.is_rolled_back:
            noted.rolled_back.add(unit.name)
            continue
        noted.accepted.add(unit.name)
        if unit.kind == "order":
            orders.append(unit.name)
        if unit.kind == "keyed":
            noted.answers[unit.name] = [unit.id()] * (unit.how + 1)
        for turn, promise in enumerate(unit.promises):
            if promise.again:
                continue
            end = min(promise.ends)
            follows = unit.kind == "twins" and turn == 1
            fence = 0 if end is State.CANCELLED else promise.attempts + (unit.number % 7 == 0 and not follows)
            if end is State.CANCELLED:
                noted.cancels[promise.id] = ("cancelled", 0)
            _ran(unit, promise, fence, entries, calls, quietly=follows)
            if promise.books:
                booked[promise.id] = 1
            rows[promise.id] = Job(
                id=promise.id, task="t", queue="q", kind=Kind.RUN, state=end, reason=None, created=HEALED, told=True, fence=fence,
                attempts=fence, crashes=max(0, fence - promise.attempts), holder=unit.id(0) if follows else None,
                finished=HEALED + timedelta(seconds=unit.number),
            )  # fmt: skip
    return replace(history, rows=rows, entries=entries, calls=calls, booked=booked, orders=orders)


def _ran(unit: Unit, promise: Promise, fences: int, entries: list[Entry], calls: list[Call], *, quietly: bool) -> None:
    for fence in range(1, fences + 1):
        at, owner, crashed = unit.number * 100 + fence * 10.0, f"w-{fence}", fence == 1 and fences > promise.attempts
        calls.append(Call("claim", promise.id, fence, owner, at, at + 0.1, True, 3))
        if not quietly:
            entries.append(Entry("enter", promise.id, fence))
        if crashed:
            calls.append(Call("recover", promise.id, fence, owner, at + 4, at + 4.1, True))
            continue
        if fence == fences and promise.value is not None and not quietly:
            entries.append(Entry(f"return {promise.value}", promise.id, fence))
        calls.append(Call("renew", promise.id, fence, owner, at + 1, at + 1.1, True, 3))
        calls.append(Call("settle", promise.id, fence, owner, at + 2, at + 2.1, True))


# -- what breaks it ---------------------------------------------------------------------------------------------------


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


def test_what_nobody_knows_is_not_held_against_a_run() -> None:
    """A call whose process died may have taken effect or not, and an owner may have settled before its lease was over."""
    claims = [Call("claim", "plain-0.0", fence, f"w{fence}", fence, fence + 0.1, True, 3) for fence in (1, 2, 3)]
    dying = Call("settle", "plain-0.0", 1, "w1", 1.5)
    settled = Call("settle", "plain-0.0", 2, "w2", 2.5, 2.6, True)
    lost_claim = Call("claim", "plain-0.0", 0, None, 2.7)
    history = replace(good(1), calls=[*claims, dying, settled, lost_claim])
    assert not list(RULES["leases_do_not_overlap"](history))


def test_of_two_sweeps_at_once_both_may_take_the_recovery_for_their_own() -> None:
    calls = [
        Call("claim", "plain-0.0", 1, "w", 1, 1.1, True, 3),
        Call("recover", "plain-0.0", 1, "w", 4.2, 4.9, True),
        Call("recover", "plain-0.0", 1, "w", 4.3, 4.8, True),
    ]
    history = replace(good(1), calls=calls)
    assert not list(RULES["one_settle_a_fence"](history))


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
