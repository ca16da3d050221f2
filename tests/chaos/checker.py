"""The history checker: reads what is left of a run, and says what is not as it was promised. Pure.

Each rule is a function from a history to the problems that it finds, in words, and is seen to find them in ``test_history_checker.py``. What cannot be known is
never held against a run: a call whose process died may have taken effect or not, at any moment after it began.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise

from celery_guard.job.row import Job
from celery_guard.job.state import ENDED, State

from .history import Call, History
from .notes import ACCEPTED, IN_DOUBT

__all__ = ["GAP", "RULES", "check"]

#: While a relay and a worker can act, no more leases than this go by without the end of a job, as long as there is one to end.
GAP = 10

Rule = Callable[[History], Iterator[str]]


def check(history: History) -> dict[str, list[str]]:
    """What each rule has found; empty where all is well."""
    found = {name: list(rule(history)) for name, rule in RULES.items()}
    return {name: problems for name, problems in found.items() if problems}


def nothing_accepted_is_lost(history: History) -> Iterator[str]:
    """What was accepted has a row, which ended as it may end, and whoever succeeded has run to the end of its body."""
    for unit, promise in history.accepted():
        job = history.rows.get(promise.id)
        if job is None:
            if not promise.again:
                yield f"{promise.id} was accepted and is gone"
            continue
        if job.state in ENDED and job.state not in promise.ends:
            yield f"{promise.id} ended as {job.state} ({job.reason})"
        ran = promise.id if not promise.keyed else _holder(job)
        if job.state is State.SUCCEEDED and not history.returned(ran):
            yield f"{promise.id} of {unit.name} succeeded, and no body has returned"


def _holder(job: Job) -> str:
    return job.holder or job.id


def nothing_rolled_back_ran(history: History) -> Iterator[str]:
    """What was rolled back has left no row and no order, and has not run; what was committed found its order."""
    orders = set(history.orders)
    for unit in history.plan.units:
        if unit.name in history.noted.rolled_back:
            left = [promise.id for promise in unit.promises if promise.id in history.rows or history.of.get(promise.id)]
            yield from (f"{id} was rolled back and is there" for id in left)
            if unit.name in orders:
                yield f"the order of {unit.name} was rolled back and is there"
    yield from (f"{entry.id} has run, and found no order" for entry in history.entries if entry.what[:7] == "missing")


def what_was_asked_is_there_whole(history: History) -> Iterator[str]:
    """Whenever the publisher was killed, and at the end: what it was told is accepted is there, what it never asked is not, and nothing is there in part.

    What it asked without being told the answer may be there or not: an order with its job, the jobs of a canvas all of them, or none.
    """
    for sight in (*history.sights, history.end):
        for unit, told, there in sight.units:
            may_be = {
                ACCEPTED: ({*unit.written},),
                IN_DOUBT: (set(), set() if unit.is_rolled_back else {*unit.written}),
            }.get(told, (set(),))
            if there not in may_be:
                yield f"{sight.when}: {unit.name} is {told}, and of {[*unit.written]} there are {sorted(there)}"
    asked_for = {promise.id for unit in history.plan.units for promise in unit.promises}
    # jobs by which Celery waits for a chord are its own
    ours = {job.id for job in history.rows.values() if not job.task.startswith("celery.")}
    yield from (f"{id} is there, and is nobody's" for id in sorted((ours | {*history.of}) - asked_for))


def leases_do_not_overlap(history: History) -> Iterator[str]:
    """No attempt is granted, and none is taken from its owner, while another's lease is alive for certain."""
    of: defaultdict[str, list[Call]] = defaultdict(list)
    for call in history.calls:
        of[call.id].append(call)
    for id, calls in of.items():
        yield from (f"{id}: {problem}" for problem in _overlaps(calls))


def _overlaps(calls: Sequence[Call]) -> Iterator[str]:
    grants = sorted((call for call in calls if call.op == "claim" and call.answer), key=lambda call: call.fence)
    for before, after in pairwise(grants):
        if before.fence == after.fence:
            yield f"fence {after.fence} was granted to {before.owner} and to {after.owner}"
    for grant in grants:
        later = [call for call in grants if call.fence > grant.fence][:1]
        yield from _shortened(grant, [call for call in calls if call.fence == grant.fence], later)


def _shortened(grant: Call, own: Sequence[Call], later: Sequence[Call]) -> Iterator[str]:
    """A grant whose job was given to the ``later`` one, or taken from it, before its lease was over; ``own`` are the calls for its fence.

    A lease is alive at least until its length after the beginning of the call that gave it, or of the last one that renewed it.
    A settle whose answer is lost is repeated, and finds the job of another if that was claimed meanwhile: it is refused, and yet it may be what
    gave the job up. So one that was still on its way when the later grant began counts, whatever it was answered. A recovery is known by its failure.
    """
    until = max(call.began + call.lease for call in own if call.answer and call.op in ("claim", "renew"))
    for call in own:
        if call.op == "recover" and call.answer and _ended(call) < until:
            yield f"fence {grant.fence} was taken from its owner {until - _ended(call):.3f} s before the end of its lease"
    for call in later:
        given_up = [
            end
            for end in own
            if end.op in ("settle", "recover")
            and end.began < _ended(call)
            and (end.answer is not False or (end.op == "settle" and _ended(end) > call.began))
        ]
        if not given_up:
            yield f"fence {call.fence} was granted, and nobody had ended fence {grant.fence}"


def _ended(call: Call) -> float:
    assert call.ended is not None
    return call.ended


def one_settle_a_fence(history: History) -> Iterator[str]:
    """No attempt is settled twice, recovered twice, or recovered once it was settled; what was written in a job's transaction is there once.

    An owner whose lease lapsed may still settle what a sweep has recovered and nobody has claimed: it is late, and uncontested.
    A sweep that lost the answer to its recovery knows it by the number of the failure that was written with it, so of two at once only one says it was it.
    """
    settled: dict[tuple[str, int], float] = {}
    recovered: set[tuple[str, int]] = set()
    for call in sorted((call for call in history.calls if call.answer), key=_ended):
        fence = (call.id, call.fence)
        if call.op == "settle" and settled.setdefault(fence, _ended(call)) != _ended(call):
            yield f"{call.id}: fence {call.fence} was settled twice"
        if call.op == "recover":
            if settled.get(fence, call.began) < call.began:
                yield f"{call.id}: fence {call.fence} was settled, and then recovered"
            if fence in recovered:
                yield f"{call.id}: fence {call.fence} was recovered twice"
            recovered.add(fence)
    for unit, promise in history.accepted():
        job = history.rows.get(promise.id)
        expected = int(promise.books and job is not None and job.state is State.SUCCEEDED)
        if history.booked.get(promise.id, 0) != expected:
            yield f"{promise.id} of {unit.name} has booked {history.booked.get(promise.id, 0)} times, not {expected}"


def one_outcome_a_key(history: History) -> Iterator[str]:
    """Every send of a key was answered with one job, and the body of only one job of a key has run."""
    for unit in history.plan.units:
        answers = set(history.noted.answers.get(unit.name, ()))
        if len(answers) > 1:
            yield f"{unit.name} was answered with {sorted(answers)}"
        ran = {promise.id for promise in unit.promises if promise.keyed and history.entered(promise.id)}
        if len(ran) > 1:
            yield f"{unit.name} has run as {sorted(ran)}"


def canvases_complete(history: History) -> Iterator[str]:
    """Every body that returned has returned the value that the plan says: steps had their predecessors', chords all their members'."""
    for unit, promise in history.accepted():
        wrong = {value for value in history.returned(promise.id) if value != promise.value}
        if wrong:
            yield f"{promise.id} of {unit.name} has returned {sorted(wrong)}, not {promise.value}"
        elif promise.ends == {State.SUCCEEDED} and not promise.keyed and not history.returned(promise.id):
            yield f"{promise.id} of {unit.name} has never returned"


def attempts_are_bounded(history: History) -> Iterator[str]:
    """Attempts and crashes are within the contract; each entry of a body has a fence of its own, which a claim has given out."""
    for unit, promise in history.accepted():
        job, entered = history.rows.get(promise.id), history.entered(promise.id)
        if job is None:
            continue
        if job.crashes > promise.crashes:
            yield f"{promise.id} of {unit.name}: {job.crashes} processes have died under it"
        if job.attempts - job.crashes > promise.attempts:
            yield f"{promise.id} of {unit.name}: {job.attempts} attempts, {job.crashes} of them crashes"
        if len(set(entered)) < len(entered):
            yield f"{promise.id} of {unit.name}: its body was entered under the fences {entered}"
        if entered and max(entered) > job.fence:
            yield f"{promise.id} of {unit.name}: entered under fence {max(entered)}, and the row has {job.fence}"


def a_cancelled_job_does_not_start(history: History) -> Iterator[str]:
    """What was cancelled while it waited ends as cancelled, and no attempt of it starts afterwards."""
    for id, (answer, fence) in history.noted.cancels.items():
        job = history.rows.get(id)
        if answer != "cancelled" or job is None:
            continue
        if job.state is not State.CANCELLED:
            yield f"{id} was cancelled, and is {job.state}"
        if any(entered > fence for entered in history.entered(id)):
            yield f"{id} was cancelled, and has started"


def every_job_ends(history: History) -> Iterator[str]:
    """Every row is at its end, and Celery was told."""
    for job in history.rows.values():
        if job.state not in ENDED:
            yield f"{job.id} is {job.state} ({job.reason})"
        elif not job.told:
            yield f"{job.id} is {job.state}, and Celery was not told"


def recovery_is_bounded(history: History) -> Iterator[str]:
    """After the last fault no more than ``GAP`` leases go by without the end of a job, as long as there is one to end.

    What has to fit in: the lease of who died, the slot of a relay that died (a lease too), a sweep, the pause after a crash, and the time after
    which a message is taken for lost, twice as long each time it was lost in a row; three times fit. A worker's boot is not in it, nor is time that a
    busy machine gives no relay, see :meth:`History.waits`: such time has no bound in leases.
    """
    for before, waited in history.waits():
        if waited > GAP * history.lease:
            yield f"nothing ended for {waited / history.lease:.1f} leases after {before}"


RULES: dict[str, Rule] = {
    rule.__name__: rule
    for rule in (
        nothing_accepted_is_lost, nothing_rolled_back_ran, what_was_asked_is_there_whole, leases_do_not_overlap, one_settle_a_fence,
        one_outcome_a_key, canvases_complete, attempts_are_bounded, a_cancelled_job_does_not_start, every_job_ends, recovery_is_bounded,
    )
}  # fmt: skip


def measured(history: History) -> dict[str, float]:
    """What a report says beside the problems: counts, and the longest wait for the end of a job after the heal, in leases."""
    waits = [waited / history.lease for _, waited in history.waits()]
    states: defaultdict[str, int] = defaultdict(int)
    for job in history.rows.values():
        states[job.state.value] += 1
    doubts = [bool(there) for sight in history.sights for _, told, there in sight.units if told == IN_DOUBT]
    return {
        "publishers killed": len(history.sights), "steps in doubt": len(doubts), "of them accepted": sum(doubts),
        "jobs": len(history.rows), **dict(sorted(states.items())), "attempts": sum(job.attempts for job in history.rows.values()),
        "crashes": sum(job.crashes for job in history.rows.values()), "longest wait (leases)": round(max(waits, default=0.0), 2),
    }  # fmt: skip
