"""``guard leave``: whether the guard can be taken out."""

from __future__ import annotations

from celery_guard.job.state import Reason, State

from .shop import Canned, Run, a_job, answer_of


def test_it_is_done_when_nothing_waits(run: Run) -> None:
    store = Canned(check=None, counts={State.SUCCEEDED: 5, State.DEAD: 2})
    result = run("leave", store=store)
    assert result.exit_code == 0
    assert "No job waits or runs." in result.output
    assert "2 dead letters stay in the store" in result.output
    assert "`leaving` is off here" in result.output


def test_it_is_not_done_while_a_job_waits_and_says_which(run: Run) -> None:
    job = a_job(state=State.PENDING, reason=Reason.RETRY)
    store = Canned(check=None, counts={State.PENDING: 1}, jobs=[job])
    result = run("leave", store=store)
    assert result.exit_code == 1
    assert "1 unfinished" in result.output
    assert "7e1f" in result.output
    told = run("leave", "--json", store=store)
    assert told.exit_code == 1
    assert answer_of(told) == {
        "leaving": False,
        "unfinished": 1,
        "dead": 0,
        "jobs": [{"id": "7e1f", "task": "shop.charge", "state": "pending", "reason": "retry"}],
    }
